"""Metrics as series of points, for charts: a bounded number of points, read from a bounded part of the run.

    page = read_series(run_dir, ["rollout/reward", "train/gradient_norm"], axis="train_step", max_points=500)
    page = read_series(run_dir, names, axis="train_step", max_points=500, cursor=page.cursor)   # what is new

A point is a time slot with the count, sum, smallest, largest and last value of its records. Short windows have slots of
one second, long ones coarser slots, which the writers have already summed up.
"""

import re
import time
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from quartet.errors import ConfigError
from quartet.telemetry.metrics import declared
from quartet.telemetry.rollup import Rollup
from quartet.telemetry.slices import METRICS, run_extent, slot_of, writers
from quartet.telemetry.slots import Slots, choose_slot_seconds, merged, read_slots

Axis = Literal["time", "train_step", "version"]
"""Unit of `Point.x`: Unix seconds, or the newest train step or policy version at that time."""
_AXIS_METRIC = {"train_step": "train/step", "version": "train/version"}
_COARSE_POINTS = 200
_CURSOR = re.compile("([1-9][0-9]{0,14})@([0-9]{1,15})")
_SETTLED_SECONDS = 3.0
"""Delay within which records reach their file; younger slots may still grow."""


class Point(Struct, frozen=True, kw_only=True):
    """Summary of the records in one slot."""

    x: float
    """Position on the requested axis."""
    time: float
    """Begin of the slot in Unix seconds."""
    count: int
    sum: float
    min: float
    max: float
    last: float
    """Last value; over several roles, that of the process started last."""

    @property
    def mean(self) -> float:
        return self.sum / self.count


class Series(Struct, frozen=True, kw_only=True):
    """Points of one metric, by time."""

    name: str
    """`area/thing_unit`, declared in `quartet.telemetry.metrics.METRICS`."""
    role: str
    """Role that recorded it; empty if all roles are merged."""
    points: list[Point]


class SeriesPage(Struct, frozen=True, kw_only=True):
    """Result of `read_series`. A metric without records has no series."""

    series: list[Series]
    slot_seconds: int
    """Width of every point."""
    cursor: str
    """Position for the next call, which returns newer data. A plain string, safe in a URL."""
    replaces: bool
    """True: these are all points. False: only points changed or added since the cursor; a point replaces the one with
    the same `time`."""


def read_series(
    run_dir: Path,
    names: list[str],
    *,
    axis: Axis = "time",
    start: float | None = None,
    end: float | None = None,
    cursor: str = "",
    max_points: int = 1000,
    by_role: bool = False,
) -> SeriesPage:
    """Return series of `names` between `start` and `end`, at most `max_points` points each.

    Both are Unix seconds, by default those of the run. With the `cursor` of an earlier page with the same arguments,
    only newer data is returned. Slots begin at whole multiples of their width, so the first and last may exceed the
    window. Raises `ConfigError` for an undeclared name or an invalid cursor, `RecordsError` for a run that an older
    Quartet recorded.
    """
    for name in names:
        declared(name)
    known = _parse_cursor(cursor)
    extent = run_extent(run_dir)
    if extent is None:
        return SeriesPage(series=[], slot_seconds=1, cursor=cursor, replaces=True)
    first, last = extent[0] if start is None else start, extent[1] if end is None else end
    everyone = writers(run_dir, METRICS)
    slot_seconds = choose_slot_seconds(everyone, first, last, max_points)
    replaces = known is None or known[0] != slot_seconds
    begin = first if known is None or replaces else max(first, known[1])
    wanted = {*names} if axis == "time" else {*names, _AXIS_METRIC[axis]}
    found = read_slots(everyone, wanted, begin, last, slot_seconds)
    shown = found if by_role else merged(found)
    places = {
        clock: _Places(run_dir, axis, found, clock, extent[0], begin)
        for clock in {_clock(axis, role) for _, role in shown}
    }
    series = [
        Series(
            name=name,
            role=role,
            points=[places[_clock(axis, role)].point(slot, rollup) for slot, rollup in sorted(slots.items())],
        )
        for name in names
        for (other, role), slots in sorted(shown.items())
        if other == name
    ]
    settled = slot_of(min(last, time.time()) - _SETTLED_SECONDS, slot_seconds)
    return SeriesPage(
        series=series,
        slot_seconds=slot_seconds,
        cursor=f"{slot_seconds}@{max(settled, slot_of(begin, slot_seconds))}",
        replaces=replaces,
    )


def _clock(axis: Axis, role: str) -> str:
    """Return the role whose train steps or versions place the points of `role`: a trainer's own, else all merged."""
    return role if axis != "time" and role.partition("-")[0] == declared(_AXIS_METRIC[axis]).module else ""


def _axis_slots(found: Mapping[tuple[str, str], Slots], metric: str, clock: str) -> Slots:
    own = {key: slots for key, slots in found.items() if key[0] == metric and clock in ("", key[1])}
    return merged(own).get((metric, ""), {})


class _Places:
    """Positions of slots on an axis."""

    def __init__(
        self,
        run_dir: Path,
        axis: Axis,
        found: Mapping[tuple[str, str], Slots],
        clock: str,
        run_start: float,
        begin: float,
    ) -> None:
        """Take the axis's own metric from `found`, which begins at `begin` (Unix seconds), and read its last value
        before that."""
        self._is_time, self._slots, self._values = axis == "time", list[int](), list[float]()
        if self._is_time:
            return
        metric = _AXIS_METRIC[axis]
        for slot, rollup in sorted(_axis_slots(found, metric, clock).items()):
            self._slots.append(slot)
            self._values.append(rollup.last)
        self._before = _last_value(run_dir, metric, clock, run_start, begin)

    def point(self, slot: int, rollup: Rollup) -> Point:
        return Point(x=slot if self._is_time else self._value_at(slot), time=slot, **asdict(rollup))

    def _value_at(self, slot: int) -> float:
        """Return the newest value known within the slot."""
        known = bisect_right(self._slots, slot)
        return self._values[known - 1] if known else self._before


def _last_value(run_dir: Path, metric: str, clock: str, start: float, end: float) -> float:
    """Return the last value of a metric in [start, end), or 0 if there is none: before the first train step."""
    if start >= end:
        return 0.0
    everyone = writers(run_dir, METRICS)
    seconds = choose_slot_seconds(everyone, start, end, _COARSE_POINTS)
    slots = _axis_slots(read_slots(everyone, {metric}, start, end, seconds), metric, clock)
    return slots[max(slots)].last if slots else 0.0


def _parse_cursor(cursor: str) -> tuple[int, int] | None:
    """Return width and begin of the first slot that may have changed. Raises `ConfigError`."""
    if not cursor:
        return None
    parts = _CURSOR.fullmatch(cursor)
    if parts is None:
        raise ConfigError(f"{cursor!r} is no cursor of a series", "use the cursor of an earlier page, or none")
    return int(parts[1]), int(parts[2])
