"""Names of the metrics that a run recorded, read from its rollups, so that reading takes hardly longer for a long
run."""

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from quartet.telemetry.rollup import ROLLUP_SECONDS, SLOTS_PER_FILE, decode_slots
from quartet.telemetry.slices import METRICS, Writer, lines_of, slice_files, writers


def recorded_metrics(run_dir: Path) -> dict[str, list[str]]:
    """Return the roles that recorded each metric, by the metric's name. A new metric is found after ten seconds.

    Raises `RecordsError` for a run that an older Quartet recorded.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for writer in writers(run_dir, METRICS):
        for name in _names(writer):
            found[name].add(writer.role)
    return {name: sorted(found[name]) for name in sorted(found)}


def _names(writer: Writer) -> Iterator[str]:
    """Yield the names in the coarsest slots, then the names in finer slots that begin after the coarse ones."""
    covered = 0
    for seconds in reversed(ROLLUP_SECONDS):
        begin = covered
        for path in slice_files(writer.rollups(seconds), begin, math.inf, seconds=seconds * SLOTS_PER_FILE):
            for slot in decode_slots(lines_of(path)):
                if slot.begin >= begin:
                    covered = max(covered, slot.begin + seconds)
                    yield from slot.series
