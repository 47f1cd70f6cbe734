"""Reader of metrics in time slots, from the coarsest possible rollups, and from finer ones where these are missing.

A coarse rollup is missing while its slot has not ended, and if its writer was killed.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping

from quartet.telemetry.line_decoder import records
from quartet.telemetry.metrics import LABEL, described
from quartet.telemetry.rollup import ROLLUP_SECONDS, SLOTS_PER_FILE, Rollup, decode_slots, finite, merge
from quartet.telemetry.slices import Writer, lines_of, slice_files, slot_of

SLOT_SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600)
"""Widths of points. Above the last one, each width is twice the previous one."""
MAX_RECORD_BYTES = 6_000_000
"""Maximum number of bytes of records that are read to compute slots finer than the finest rollup."""

Slots = dict[int, Rollup]
"""Start of a slot in Unix seconds -> rollup of the slot."""


def choose_slot_seconds(writers: Collection[Writer], start: float, end: float, max_points: int) -> int:
    """Return the finest width with at most `max_points` slots between `start` and `end` (Unix seconds).

    If records of more than `MAX_RECORD_BYTES` would have to be read, return the width of the finest rollup.
    """
    widths = (*SLOT_SECONDS, *(SLOT_SECONDS[-1] * 2**k for k in range(1, 30)))
    seconds = next(width for width in widths if (end - start) / width + 1 <= max_points or width == widths[-1])
    finest = ROLLUP_SECONDS[0]
    if seconds < finest and _record_bytes(writers, start, end) > MAX_RECORD_BYTES:
        return finest
    return seconds


def read_slots(
    writers: Collection[Writer], names: Collection[str], start: float, end: float, seconds: int
) -> dict[tuple[str, str], Slots]:
    """Return, by metric name and role, the slots of width `seconds` that overlap [start, end) in Unix seconds."""
    first, last = slot_of(start, seconds), math.ceil(end / seconds) * seconds
    level = max((i for i, width in enumerate(ROLLUP_SECONDS) if seconds % width == 0), default=-1)
    found: dict[tuple[str, str], Slots] = {}
    for writer in writers:
        numbers = _named(_written(writer, names, first, last, level), names)
        for moment, name, rollup in numbers:
            merge(found.setdefault((name, writer.role), {}), {slot_of(moment, seconds): rollup})
    return found


def merged(found: Mapping[tuple[str, str], Slots]) -> dict[tuple[str, str], Slots]:
    """Return the slots merged over all roles; the role in the keys is empty. Rates, such as tokens/s, are added."""
    together: dict[tuple[str, str], Slots] = {}
    for (name, _), slots in found.items():
        join = Rollup.beside if described(name).unit.endswith("/s") else Rollup.plus
        merge(together.setdefault((name, ""), {}), slots, join)
    return together


def _named(
    written: Iterable[tuple[float, Mapping[str, Rollup]]], names: Collection[str]
) -> Iterator[tuple[float, str, Rollup]]:
    """Yield (time, name, rollup) of the metrics with these names."""
    for moment, series in written:
        yield from ((moment, name, rollup) for name, rollup in series.items() if name in names)


def _written(
    writer: Writer, names: Collection[str], start: float, end: float, level: int
) -> Iterator[tuple[float, Mapping[str, Rollup]]]:
    """Yield rollups of the numbers that one writer recorded in [start, end), each number once.

    First the slots of a level are read, then the finer slots after the last of them. The line of a slot is written
    after the finer lines that it sums up, so no number is missed in this order.
    """
    if level < 0:
        yield from _recorded(writer, names, start, end)
        return
    seconds, covered = ROLLUP_SECONDS[level], start
    for path in slice_files(writer.rollups(seconds), start, end, seconds=seconds * SLOTS_PER_FILE):
        for slot in decode_slots(lines_of(path)):
            covered = max(covered, slot.begin + seconds)
            if start <= slot.begin < end:
                yield slot.begin, slot.series
    if covered < end:
        yield from _written(writer, names, covered, end, level - 1)


def _recorded(
    writer: Writer, names: Collection[str], start: float, end: float
) -> Iterator[tuple[float, Mapping[str, Rollup]]]:
    """Yield a rollup of each number in the records of one writer in [start, end)."""
    things: dict[str, list[str]] = {}  # names without the area, by area
    for name in names:
        area, _, thing = name.partition("/")
        if described(name).unit != LABEL:
            things.setdefault(area, []).append(thing)
    marks = [f'"area":"{area}"'.encode() for area in things]
    # Lines of other areas, which are most of all lines, are skipped before decoding.
    marked = (line for line in writer.lines(start, end) if any(mark in line for mark in marks))
    for record in records(marked):
        area = record["area"]
        if start <= record["time"] < end and area in things:
            numbers = [(f"{area}/{thing}", record.get(thing)) for thing in things[area]]
            yield record["time"], {name: Rollup(1, *[float(value)] * 4) for name, value in numbers if finite(value)}


def _record_bytes(writers: Collection[Writer], start: float, end: float) -> int:
    return sum(path.stat().st_size for writer in writers for path in writer.slices(start, end))
