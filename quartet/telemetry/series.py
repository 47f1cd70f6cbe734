"""Metrics as series of points, for charts. The number of points is bounded, and so is the amount of data read.

    page = read_series(run_dir, ["rollout/reward", "train/gradient_norm"], axis="train_step", max_points=500)
    page = read_series(run_dir, names, axis="train_step", max_points=500, cursor=page.cursor)   # only newer points

A point is a time slot with the count, sum, smallest, largest and last value of its records. In short windows a slot is
one second wide; in long windows slots are wider, and the writers have already summed them up.
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

Axis = Literal["time", "train_step", "version", "rollouts"]
"""Unit of `Point.x`: Unix seconds, or the newest train step or policy version, or the number of training rollouts, at
that time."""
_AXIS_METRIC = {"train_step": "train/step", "version": "train/version", "rollouts": "data/rollouts"}
_COARSE_POINTS = 200
_CURSOR = re.compile("([1-9][0-9]{0,14})@([0-9]{1,15})")
_SETTLED_SECONDS = 3.0
"""Maximum delay until a record is in its file; slots that ended less than this ago may still change."""


class Point(Struct, frozen=True, kw_only=True):
    """Summary of the records in one slot."""

    x: float
    """Position on the requested axis."""
    time: float
    """Start of the slot in Unix seconds."""
    count: int
    sum: float
    min: float
    max: float
    last: float
    """Last value. If several roles are merged: the last value of the role whose name comes last in the alphabet, and
    of that role's newest process; of a rate, such as tokens/s, the sum over roles."""

    @property
    def mean(self) -> float:
        """Mean of the records; of a rate whose roles are merged, the sum of the roles' means."""
        return self.sum / self.count


class Series(Struct, frozen=True, kw_only=True):
    """Points of one metric, by time."""

    name: str
    """`area/thing_unit`, declared in `quartet.telemetry.metrics.METRICS`."""
    role: str
    """Role that recorded the metric; empty if all roles are merged."""
    points: list[Point]


class SeriesPage(Struct, frozen=True, kw_only=True):
    """Result of `read_series`. A metric without records has no series."""

    series: list[Series]
    slot_seconds: int
    """Width of each point's slot."""
    cursor: str
    """Position to pass to the next call, which then returns only newer data. It needs no escaping in a URL."""
    replaces: bool
    """True if these are all points. False if they are only the points that were changed or added since the cursor; each
    replaces an earlier point with the same `time`."""


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
    """Return series of the metrics `names` between `start` and `end`, with at most `max_points` points each.

    `start` and `end` are Unix seconds; by default the whole run is covered. With the `cursor` of an earlier page, made
    with the same arguments, only newer data are returned. Slots begin at whole multiples of their width, so the first
    and the last slot may extend beyond the window. With `by_role`, each role has its own series.

    Raises `ConfigError` for a name that is not declared or an invalid cursor, and `RecordsError` for a run that an
    older Quartet recorded.
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
    """Return the role whose train steps or versions give the x of the points of `role`.

    A trainer's points use the trainer's own steps; for all other roles the result is "", which means all trainers.
    """
    return role if axis != "time" and role.partition("-")[0] == declared(_AXIS_METRIC[axis]).module else ""


def _axis_slots(found: Mapping[tuple[str, str], Slots], metric: str, clock: str) -> Slots:
    own = {key: slots for key, slots in found.items() if key[0] == metric and clock in ("", key[1])}
    return merged(own).get((metric, ""), {})


class _Places:
    """Positions (`Point.x`) of slots on an axis."""

    def __init__(
        self,
        run_dir: Path,
        axis: Axis,
        found: Mapping[tuple[str, str], Slots],
        clock: str,
        run_start: float,
        begin: float,
    ) -> None:
        """Take the metric of the axis (train step or version) from `found`, whose slots start at `begin` (Unix
        seconds), and read the metric's last value before `begin`."""
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
        """Return the axis metric's newest value in the slot or before it."""
        known = bisect_right(self._slots, slot)
        return self._values[known - 1] if known else self._before


def _last_value(run_dir: Path, metric: str, clock: str, start: float, end: float) -> float:
    """Return the last value of a metric in [start, end); 0 if there is none, as before the first train step."""
    if start >= end:
        return 0.0
    everyone = writers(run_dir, METRICS)
    seconds = choose_slot_seconds(everyone, start, end, _COARSE_POINTS)
    slots = _axis_slots(read_slots(everyone, {metric}, start, end, seconds), metric, clock)
    return slots[max(slots)].last if slots else 0.0


def _parse_cursor(cursor: str) -> tuple[int, int] | None:
    """Return the width and the start of the first slot that may have changed; None for an empty cursor.

    Raises `ConfigError` for an invalid cursor.
    """
    if not cursor:
        return None
    parts = _CURSOR.fullmatch(cursor)
    if parts is None:
        raise ConfigError(f"{cursor!r} is not a cursor of a series", "use the cursor of an earlier page, or none")
    return int(parts[1]), int(parts[2])
