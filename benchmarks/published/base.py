"""Base of a part: systems that are simulated under the same assumptions, and the outcomes that are compared."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct

from benchmarks.virtual.figures import Figures
from benchmarks.virtual.scenario import Scenario

TOLERANCE = 0.15
"""Largest relative difference to a single published value that counts as reproduced."""
A = TypeVar("A", bound=Struct)
Changes = Mapping[str, Any]
"""Assumed settings that a variation changes, with their other values."""
Simulate = Callable[[A, str], Figures]
"""Function that returns the figures of a system, given by its name, under assumptions."""


class Length(Struct, frozen=True, kw_only=True):
    """Train steps of a simulation: first those that are not measured, while the run fills, then the measured ones."""

    warm_steps: int
    train_steps: int


class Outcome(Struct, frozen=True, kw_only=True):
    """One number that follows from the figures of all systems, beside the published one if there is one."""

    meaning: str
    """Text of the documentation's tables."""
    simulated: float
    published: tuple[float, float] | None = None
    """Lowest and highest published value: the same for a single value, an infinite highest one for a lower bound."""

    @property
    def reproduced(self) -> bool | None:
        """True if the simulated value is within `TOLERANCE` of a single published one, or within a published range;
        None if nothing is published."""
        if self.published is None:
            return None
        low, high = self.published
        margin = TOLERANCE * low if low == high else 0.0
        return low - margin <= self.simulated <= high + margin


def single(value: float) -> tuple[float, float]:
    """Return the published range of a single value."""
    return value, value


def at_least(value: float) -> tuple[float, float]:
    """Return the published range of a claim that has no upper bound."""
    return value, math.inf


class Part(ABC, Generic[A]):
    """One question to the simulator. `assumed` has the settings that no source gives, with their default values."""

    assumed: A
    systems: ClassVar[Sequence[str]]
    """Names of the systems that are simulated under the same assumptions."""
    variations: ClassVar[Sequence[Changes]] = ()
    """Changes of the assumptions under which all systems are simulated again, to show how the outcomes depend on
    them."""
    length: ClassVar[Length]
    """Length of the published results."""
    headlines: ClassVar[Sequence[str]] = ()
    """Names of outcomes that the JSON line also has at its top."""

    @abstractmethod
    def scenario(self, assumed: A, system: str) -> Scenario:
        """Return one system."""

    def prepared(self, assumed: A, simulate: Simulate[A]) -> A:
        """Return the assumptions to simulate with, for instance after a calibration on one of the systems."""
        return assumed

    @abstractmethod
    def outcomes(self, assumed: A, figures: Mapping[str, Figures]) -> dict[str, Outcome]:
        """Return the outcomes by name. `figures` has those of all systems."""


def vary(**values: Sequence[float]) -> list[Changes]:
    """Return one variation for each of the other values of each setting."""
    return [{name: value} for name, of_setting in values.items() for value in of_setting]
