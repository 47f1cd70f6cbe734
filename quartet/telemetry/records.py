"""Reader of a run's metric records in a time window."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quartet.telemetry.line_decoder import records
from quartet.telemetry.slices import METRICS, writers


def read_records(run_dir: Path, area: str, *, start: float = 0.0, end: float = math.inf) -> Iterator[dict[str, Any]]:
    """Yield the records of one area (`rollout`, `train`, `data`, ...) in [start, end) Unix seconds.

    They come writer by writer, and by time for each writer. A record has `time`, `role`, `area`, and the values by
    their names without the area. Files are read one after another and not kept in memory. Without a window, the whole
    run is read; for charts, use `read_series`. Raises `RecordsError` for a run that an older Quartet recorded.
    """
    mark = f'"area":"{area}"'.encode()
    for writer in writers(run_dir, METRICS):
        marked = (line for line in writer.lines(start, end) if mark in line)
        for record in records(marked):
            if record["area"] == area and start <= record["time"] < end:
                yield record | {"role": writer.role}
