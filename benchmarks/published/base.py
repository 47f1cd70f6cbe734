"""Comparison of a published ratio with the simulator's, and its sensitivity to assumed settings."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from benchmarks.virtual.figures import Figures, simulate
from benchmarks.virtual.scenario import Scenario

TOLERANCE = 0.15
"""Largest relative difference that counts as reproduced."""
A = TypeVar("A", bound=Struct)
Length = tuple[int, int]
"""Train steps before the measurement, and in it."""


class Ratio(Struct, frozen=True, kw_only=True):
    """One published ratio beside the simulated one."""

    published: float
    simulated: float
    at_least: bool = False
    """True if the published ratio is the least that is claimed."""

    @property
    def reproduced(self) -> bool:
        """True if the simulated ratio is within `TOLERANCE` of the published one or, with `at_least`, not below it."""
        if self.at_least:
            return self.simulated >= self.published
        return abs(self.simulated / self.published - 1) <= TOLERANCE

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and `reproduced`, rounded."""
        return {
            "published": self.published,
            "simulated": round(self.simulated, 3),
            "reached" if self.at_least else "within_15_percent": self.reproduced,
        }


def compare(
    assumed: A,
    ratios: Callable[[A, Length], Mapping[str, Ratio]],
    varied: Mapping[str, tuple[float, ...]],
    length: Length,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Return the ratios under the assumptions, and again with each assumption at the values of `varied`."""
    result: dict[str, Any] = {name: ratio.to_dict() for name, ratio in ratios(assumed, length).items()}
    say(f"assumed {asdict(assumed)}: {_short(result)}")
    sensitivity: dict[str, dict[str, float]] = {}
    for name, values in varied.items():
        for value in values:
            changed = ratios(replace(assumed, **{name: value}), length)
            sensitivity[f"{name} = {value:g}"] = {key: round(ratio.simulated, 3) for key, ratio in changed.items()}
            say(f"{name} = {value:g}: {sensitivity[f'{name} = {value:g}']}")
    return result | {"assumed": asdict(assumed), "sensitivity": sensitivity}


def run(scenario: Scenario, length: Length) -> Figures:
    """Simulate a scenario."""
    return simulate(scenario, warm_steps=length[0], train_steps=length[1])


def _short(result: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {one['simulated']} (published {one['published']})" for name, one in result.items())
