"""Figures of simulated systems in the raw results: one line per system and assumptions, added at its end."""

from collections.abc import Callable
from pathlib import Path
from typing import Generic

import click
import msgspec
from msgspec.structs import asdict

from benchmarks.published.base import A, Length, Part
from benchmarks.raw_results import Key, RawResults, require_commit, taken
from benchmarks.virtual.figures import Figures, simulate


class NotSimulatedError(LookupError):
    """The raw results lack a system under these assumptions."""


class Simulated(Generic[A]):
    """Figures of one part in its file of raw results. Raises `click.ClickException` if they differ in their length."""

    def __init__(self, file: Path) -> None:
        self.raw = RawResults(file, Figures)
        self._figures: dict[bytes, Figures] = {}
        self.length: Length | None = None
        """Length of the simulations; None if there are none."""
        for key, figures in self.raw.read():
            self._figures[msgspec.json.encode(key)] = figures
            self.require(msgspec.convert({name: key[name] for name in Length.__struct_fields__}, Length))

    def require(self, length: Length) -> None:
        """Raise `click.ClickException` if there are results of another length."""
        if self.length not in (None, length):
            raise click.ClickException(
                f"{self.raw.file} has results of {self.length} beside {length}: --anew deletes them"
            )
        self.length = length

    def __call__(self, assumed: A, system: str) -> Figures:
        """Return the figures of a system. Raises `NotSimulatedError` if the raw results lack them."""
        key = self._key(assumed, system)
        figures = self._figures.get(msgspec.json.encode(key))
        if figures is None:
            figures = self._figures[msgspec.json.encode(key)] = self._missing(assumed, system, key)
        return figures

    def _missing(self, assumed: A, system: str, key: Key) -> Figures:
        raise NotSimulatedError(f"{self.raw.file} has no result of {system} with {assumed}")

    def _key(self, assumed: A, system: str) -> Key:
        return {"system": system, "assumed": asdict(assumed)} | (asdict(self.length) if self.length else {})


class Simulator(Simulated[A]):
    """Figures of one part: what the raw results lack is simulated and added to them. `folder` is for the ledgers.

    Raises `click.ClickException` for results of another length, and for published ones that would belong to no commit.
    """

    def __init__(
        self, part: Part[A], file: Path, length: Length, folder: Path | None, say: Callable[[str], None]
    ) -> None:
        super().__init__(file)
        self.require(length)
        self._part, self._simulated_length, self._folder, self._say = part, length, folder, say

    def _missing(self, assumed: A, system: str, key: Key) -> Figures:
        require_commit(self.raw.file.parent)
        how = taken()
        figures = simulate(self._part.scenario(assumed, system), folder=self._folder, **asdict(self._simulated_length))
        self.raw.add(key, figures, how)
        self._say(f"{self.raw.file.stem}, {system}: {figures.train_step_period_seconds:,.1f} s per train step")
        return figures
