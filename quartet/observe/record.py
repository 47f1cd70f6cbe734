"""Metrics and spans: one JSON object per line, appended to the run's files by every module.

A line is written with one `write` on an append-only descriptor, so modules never tear each other's lines.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec


class Recorder:
    """Writes this module's metrics to `metrics.jsonl` and its spans to `spans.jsonl` of a run."""

    def __init__(self, run_dir: Path, module: str) -> None:
        self.module = module
        self._metrics = _open_append(run_dir / "metrics.jsonl")
        self._spans = _open_append(run_dir / "spans.jsonl")

    def metric(self, kind: str, **values: Any) -> None:
        """One record; names are `area/thing_unit` or plain fields of `kind`."""
        _write_line(self._metrics, {"time": time.time(), "module": self.module, "kind": kind, **values})

    @contextmanager
    def span(self, name: str, **fields: Any) -> Iterator[None]:
        """Record how long the block took; `start` is Unix seconds."""
        start = time.time()
        try:
            yield
        finally:
            record = {"start": start, "seconds": time.time() - start, "module": self.module, "name": name, **fields}
            _write_line(self._spans, record)

    def close(self) -> None:
        os.close(self._metrics)
        os.close(self._spans)


def read_records(path: Path) -> list[dict[str, Any]]:
    """All complete lines; a torn last line (a process killed while writing) is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    return [msgspec.json.decode(line) for line in lines[:-1] if line]


def _open_append(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def _write_line(descriptor: int, record: dict[str, Any]) -> None:
    os.write(descriptor, msgspec.json.encode(record) + b"\n")
