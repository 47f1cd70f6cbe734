"""Reader of metric records, one window at a time."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quartet.telemetry.line_decoder import records
from quartet.telemetry.slices import METRICS, writers


def read_records(run_dir: Path, area: str, *, start: float = 0.0, end: float = math.inf) -> Iterator[dict[str, Any]]:
    """Yield the records of one area (`rollout`, `train`, `data`, ...) in [start, end) Unix seconds, each writer's by
    time.

    A record has `time`, `role`, `area`, and the values by their names without the area. Reads slice by slice and keeps
    none. Without a window that is the whole run: use `read_series` for charts. Raises `RecordsError` for a run that an
    older Quartet recorded.
    """
    mark = f'"area":"{area}"'.encode()
    for writer in writers(run_dir, METRICS):
        marked = (line for line in writer.lines(start, end) if mark in line)
        for record in records(marked):
            if record["area"] == area and start <= record["time"] < end:
                yield record | {"role": writer.role}
