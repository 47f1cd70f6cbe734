"""Rollups: sums of metrics over time slots, so that few lines must be read for a chart of a long run.

A writer adds each number to the current slot of ten seconds. When a slot ends, it is written as one line and added to
the slot of a minute that contains it, and so on. A line is written after the records that it sums up. If a process was
killed before it wrote a slot, the slot's numbers are in finer slots or in the records.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard, TypeVar

import msgspec

from quartet.telemetry.line_decoder import LineDecoder
from quartet.telemetry.slices import slot_of

ROLLUP_SECONDS = (10, 60, 600, 3600)
"""Widths of the written slots, each a multiple of the previous width."""
SLOTS_PER_FILE = 360
Key = TypeVar("Key")


class Rollup(msgspec.Struct, array_like=True, gc=False):
    """Summary of one metric's numbers in one slot."""

    count: int
    sum: float
    min: float
    max: float
    last: float

    def plus(self, later: "Rollup") -> "Rollup":
        """Return the summary of both; its `last` is that of `later`."""
        return Rollup(
            self.count + later.count,
            self.sum + later.sum,
            min(self.min, later.min),
            max(self.max, later.max),
            later.last,
        )

    def beside(self, other: "Rollup") -> "Rollup":
        """Return the summary of two processes' rates in the same slot: the rate of both is the sum of the rates."""
        return Rollup(
            1,
            self.sum / self.count + other.sum / other.count,
            self.min + other.min,
            self.max + other.max,
            self.last + other.last,
        )


class Slot(msgspec.Struct):
    """One line of a rollup file: `begin` in Unix seconds, and the slot's rollups by metric name."""

    begin: int
    series: dict[str, Rollup]


decode_slots = LineDecoder("the sums of metrics", Slot)


class Ladder:
    """Open slots of one writer, one for each width. Each slot is taken out once, after it has ended."""

    def __init__(self) -> None:
        self._open: list[Slot | None] = [None] * len(ROLLUP_SECONDS)
        self.due_at = math.inf
        """Unix seconds at which the next slot ends; call `take` before adding numbers of this time or later."""

    def add(self, moment: float, values: Iterable[tuple[str, float]]) -> None:
        """Add the numbers of one record. `moment` (Unix seconds) is before `due_at` and not before earlier records."""
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
        """Take out the slots that have ended by `now`, as pairs (width in seconds, slot), finer ones first.

        With `now` = infinity all slots are taken out.
        """
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
        """Add an ended slot to the coarser slot that contains it.

        If a slot of the coarser width is open, it contains the ended slot, since earlier coarse slots were already
        taken out.
        """
        around = self._open[level]
        if around is None:
            around = self._open[level] = Slot(slot_of(slot.begin, ROLLUP_SECONDS[level]), {})
        merge(around.series, slot.series)


def merge(
    into: dict[Key, Rollup],
    series: Mapping[Key, Rollup],
    join: Callable[[Rollup, Rollup], Rollup] = Rollup.plus,
) -> None:
    """Merge later rollups, `series`, into earlier ones, `into`, by name."""
    for key, rollup in series.items():
        into[key] = join(into[key], rollup) if key in into else rollup


def finite(value: Any) -> TypeGuard[float]:
    """Return whether the value is a number that can be summed up."""
    return isinstance(value, (int, float)) and math.isfinite(value)
