"""Metrics summed up over time slots, so that a chart of a long run reads few lines.

A writer adds every number to the slot of ten seconds it falls into; a full slot is written as one line and added to the
slot of a minute around it, and so on. A line follows the records it sums up, so whatever a killed process had not
written yet is in the finer slots, and at last in the records themselves.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard, TypeVar

import msgspec

from quartet.telemetry.line_decoder import LineDecoder
from quartet.telemetry.slices import slot_of

ROLLUP_SECONDS = (10, 60, 600, 3600)
"""Widths of the slots that are written, each a multiple of the one before."""
SLOTS_PER_FILE = 360
Key = TypeVar("Key")


class Rollup(msgspec.Struct, array_like=True, gc=False):
    """Numbers of one metric in one slot."""

    count: int
    sum: float
    min: float
    max: float
    last: float

    def plus(self, later: "Rollup") -> "Rollup":
        """Both together, as a new one; `later` has the last word."""
        return Rollup(
            self.count + later.count,
            self.sum + later.sum,
            min(self.min, later.min),
            max(self.max, later.max),
            later.last,
        )


class Slot(msgspec.Struct):
    """One line of a rollup file: `begin` in Unix seconds, and what was recorded in the slot, by metric name."""

    begin: int
    series: dict[str, Rollup]


decode_slots = LineDecoder("the sums of metrics", Slot)


class Ladder:
    """Sums up what one writer records. Every slot is taken out once, when it has ended, finer ones first."""

    def __init__(self) -> None:
        self._open: list[Slot | None] = [None] * len(ROLLUP_SECONDS)
        self.due_at = math.inf
        """Unix seconds at which the next slot ends: call `take` before anything later is added."""

    def add(self, moment: float, values: Iterable[tuple[str, float]]) -> None:
        """Add one record's numbers at `moment` (Unix seconds), which is before `due_at` and after all earlier ones."""
        slot = self._open[0]
        if slot is None:
            slot = self._open[0] = Slot(slot_of(moment, ROLLUP_SECONDS[0]), {})
            self.due_at = min(self.due_at, slot.begin + ROLLUP_SECONDS[0])
        series = slot.series
        for name, value in values:
            known = series.get(name)
            if known is None:
                series[name] = Rollup(1, value, value, value, value)
                continue
            known.count += 1
            known.sum += value
            known.last = value
            if value < known.min:
                known.min = value
            elif value > known.max:
                known.max = value

    def take(self, now: float) -> list[tuple[int, Slot]]:
        """Take out what ended by `now`, as pairs of width in seconds and slot. Infinity takes all."""
        taken: list[tuple[int, Slot]] = []
        for level, seconds in enumerate(ROLLUP_SECONDS):
            slot = self._open[level]
            if slot is None or slot.begin + seconds > now:
                continue
            taken.append((seconds, slot))
            self._open[level] = None
            if level + 1 < len(ROLLUP_SECONDS):
                self._carry(slot, level + 1)
        ends = [slot.begin + seconds for slot, seconds in zip(self._open, ROLLUP_SECONDS, strict=True) if slot]
        self.due_at = min(ends, default=math.inf)
        return taken

    def _carry(self, slot: Slot, level: int) -> None:
        """Add a full slot to the coarser one around it. An open one is that one: an earlier one has been taken out."""
        around = self._open[level]
        if around is None:
            around = self._open[level] = Slot(slot_of(slot.begin, ROLLUP_SECONDS[level]), {})
        merge(around.series, slot.series)


def merge(into: dict[Key, Rollup], series: Mapping[Key, Rollup]) -> None:
    """Add later rollups to earlier ones, by name."""
    for key, rollup in series.items():
        into[key] = into[key].plus(rollup) if key in into else rollup


def finite(value: Any) -> TypeGuard[float]:
    """Is it a number that can be summed up?"""
    return isinstance(value, (int, float)) and math.isfinite(value)
