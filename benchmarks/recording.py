"""What does recording cost a module? Processor time per metric record and per span, and for reading a run.

    python -m benchmarks.recording [--records 50000] [--json]

A record is that of one rollout, as the worker writes it. `append` is the baseline: each record is encoded and written
at once, without sums. Processor time is measured, so other load hardly matters; the three methods run in turn.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from quartet.telemetry.record import Recorder
from quartet.telemetry.series import read_series

ROUNDS = 5
RECORD: dict[str, Any] = {
    "rollout_id": 123_456,
    "attempt": 1,
    "purpose": "train",
    "family": "click-checkboxes",
    "status": "completed",
    "outcome": "appended",
    "reward": 1.0,
    "success": 1.0,
    "turns": 3,
    "prompt_tokens": 512,
    "response_tokens": 24,
    "wall_seconds": 0.8123,
    "reset_seconds": 0.171941,
    "generate_seconds": 0.028592,
    "step_seconds": 0.085621,
}


class HourlyClock:
    """Clock that advances by an hour while all records are written, so that slices and slots change as in a run."""

    def __init__(self, records: int) -> None:
        self._now, self._step = 1.7e9, 3600 / records

    def __call__(self) -> float:
        self._now += self._step
        return self._now


@click.command()
@click.option("--records", default=50_000, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(records: int, as_json: bool) -> None:
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, measure in (("append", _append), ("metric", _metric), ("span", _span)):
            with tempfile.TemporaryDirectory() as folder:
                found.setdefault(f"{name}_us", []).append(1e6 * measure(Path(folder), records) / records)
    figures = {name: round(statistics.median(values), 2) for name, values in found.items()}
    figures["read_ms"] = round(_read_ms(records), 1)
    click.echo(json.dumps(figures) if as_json else "\n".join(f"{name:12} {value}" for name, value in figures.items()))


def _append(folder: Path, records: int) -> float:
    descriptor = os.open(folder / "records.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write() -> None:
        os.write(descriptor, msgspec.json.encode({"time": time.time(), "module": "worker", **RECORD}) + b"\n")

    seconds = _processor_seconds(write, records)
    os.close(descriptor)
    return seconds


def _metric(folder: Path, records: int) -> float:
    recorder = Recorder(folder, "worker", clock=HourlyClock(records))
    started = time.process_time()
    for _ in range(records):
        recorder.metric("rollout", **RECORD)
    recorder.close()
    return time.process_time() - started


def _span(folder: Path, records: int) -> float:
    recorder = Recorder(folder, "worker", clock=HourlyClock(2 * records))

    def record() -> None:
        with recorder.span("generate", lane="session 3", trace="rollout 123456.1"):
            pass

    seconds = _processor_seconds(record, records)
    recorder.close()
    return seconds


def _processor_seconds(do: Callable[[], None], times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        do()
    return time.process_time() - started


def _read_ms(records: int) -> float:
    """Return the processor milliseconds of reading a chart of four series over the whole run."""
    with tempfile.TemporaryDirectory() as folder:
        _metric(Path(folder), records)
        started = time.process_time()
        read_series(Path(folder), ["rollout/reward", "rollout/success", "rollout/turns", "rollout/step_seconds"])
        return 1000 * (time.process_time() - started)


if __name__ == "__main__":
    main()
