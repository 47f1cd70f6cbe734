"""Layout of record files: one folder for each writer, and in it one file (slice) for each minute.

    RUN/metrics/ROLE/WRITER/1795249980.jsonl     metric records, one per line
    RUN/spans/ROLE/WRITER/1795249980.jsonl       spans
    RUN/rollups/ROLE/WRITER/600/1795176000.jsonl metrics summed up over slots of 600 s

A role is a module instance (`worker`, `engine`, `engine-2`). A writer is one process of a role, named after the time of
its start and its process id. The process that creates a writer's folder is the only one that writes there. A file's
name is the Unix second at which its slice begins.
"""

import math
import os
import re
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from quartet.errors import RecordsError
from quartet.telemetry.line_decoder import LineDecoder

METRICS, SPANS, ROLLUPS = "metrics", "spans", "rollups"
SLICE_SECONDS = 60
_SLICE_NAME = re.compile(r"[0-9]{10}\.jsonl")
_WRITER_NAME = re.compile(r"[0-9]{1,15}(-.*)?")
_FEW_SLICES = 64
"""Maximum number of file names that are tried; for a longer time the folder is listed."""


class Writer(NamedTuple):
    """One process of a role, with its folder for one kind of records."""

    role: str
    name: str
    folder: Path

    @property
    def started_at(self) -> float:
        """Start of the process in Unix seconds; no record in the folder is older."""
        return int(self.name.partition("-")[0]) / 1000

    def slices(self, start: float, end: float) -> list[Path]:
        """Return the files that hold records from [start, end) in Unix seconds, by time."""
        return slice_files(self.folder, max(start, self.started_at), end, seconds=SLICE_SECONDS)

    def lines(self, start: float, end: float) -> Iterator[bytes]:
        """Yield the lines of the files of [start, end); some lines may be just outside of it."""
        for path in self.slices(start, end):
            yield from lines_of(path)

    def rollups(self, seconds: int) -> Path:
        """Return the folder of this process's rollups over slots of `seconds`."""
        return self.folder.parents[2] / ROLLUPS / self.role / self.name / str(seconds)


def slice_files(folder: Path, start: float, end: float, *, seconds: int) -> list[Path]:
    """Return the files of a folder whose slices overlap [start, end) in Unix seconds, by time."""
    first = slot_of(start, seconds)
    if end - first <= _FEW_SLICES * seconds:
        begins = range(first, first + _FEW_SLICES * seconds, seconds)
        return [path for begin in begins if begin < end and (path := folder / slice_name(begin)).exists()]
    names = slice_names(folder)
    chosen = names[bisect_left(names, slice_name(first)) :]
    return [folder / name for name in chosen if int(name[:10]) < end]


def slice_names(folder: Path) -> list[str]:
    """Return the names of all slices of a folder, by time."""
    try:
        return sorted(name for name in os.listdir(folder) if _SLICE_NAME.fullmatch(name))  # noqa: PTH208  (thousands)
    except (FileNotFoundError, NotADirectoryError):
        return []


def slice_name(begin: int) -> str:
    return f"{begin:010d}.jsonl"


def slot_of(moment: float, seconds: int) -> int:
    """Return the Unix second at which the slot that contains `moment` begins."""
    return int(moment // seconds) * seconds


class _Moment(msgspec.Struct):
    """Fields of a line from which its time follows: `time` of a record, or the end of a span."""

    time: float = 0.0
    start: float = 0.0
    seconds: float = 0.0

    @property
    def end(self) -> float:
        return self.time or self.start + self.seconds


_decode_moments = LineDecoder("the records", _Moment, is_whole=lambda moment: 0 < moment.end < math.inf)


def writers(run_dir: Path, kind: str, roles: tuple[str, ...] | None = None) -> list[Writer]:
    """Return the writers of a kind of records (`METRICS`, `SPANS`), by role and start.

    Raises `RecordsError` for a run that only an older Quartet recorded.
    """
    root = run_dir / kind
    if not root.is_dir():
        _refuse_old(run_dir)
        return []
    found = [
        Writer(role.name, folder.name, folder)
        for role in sorted(root.iterdir())
        if role.is_dir() and (roles is None or role.name in roles)
        for folder in sorted(role.iterdir())
    ]
    return [writer for writer in found if _WRITER_NAME.fullmatch(writer.name)]


def new_writer(run_dir: Path, role: str, started_at: float) -> Writer:
    """Create a writer with a unique name, and its folder for metrics. `started_at` is in Unix seconds."""
    root = run_dir / METRICS / role
    root.mkdir(parents=True, exist_ok=True)
    milliseconds = int(started_at * 1000)
    while True:
        name = f"{milliseconds:013d}-{os.getpid()}"
        try:
            (root / name).mkdir()
        except FileExistsError:
            milliseconds += 1
            continue
        return Writer(role, name, root / name)


def lines_of(path: Path, offset: int = 0) -> Iterator[bytes]:
    """Yield the complete lines of a file from byte `offset` on.

    A last line without a newline, which is still being written or was interrupted, is left out.
    """
    yield from complete_lines(path, offset)[0]


def complete_lines(path: Path, offset: int = 0) -> tuple[list[bytes], int]:
    """Return the complete lines from byte `offset` on, and the byte at which the next line begins."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            whole, newline, _ = file.read().rpartition(b"\n")
    except FileNotFoundError:
        return [], offset
    return whole.split(b"\n") if newline else [], offset + len(whole) + len(newline)


def run_extent(run_dir: Path) -> tuple[float, float] | None:
    """Return the time at which the run's records begin and the time just after the last one, in Unix seconds.

    Spans count as records. Returns None before the first record. Reads only one slice of each process.
    """
    starts, ends = [], []
    for writer in (writer for kind in (METRICS, SPANS) for writer in writers(run_dir, kind)):
        names = slice_names(writer.folder)
        lines = complete_lines(writer.folder / names[-1])[0] if names else []
        if moment := next(_decode_moments(reversed(lines)), None):
            starts.append(max(int(names[0][:10]), writer.started_at))
            ends.append(moment.end)
    return (min(starts), math.nextafter(max(ends), math.inf)) if starts else None


def _refuse_old(run_dir: Path) -> None:
    if (run_dir / "metrics.jsonl").exists():
        raise RecordsError(
            f"{run_dir} keeps its records in metrics.jsonl and spans.jsonl, as an older Quartet wrote them",
            "read its summary.json and ledger, or continue the run with --resume for new charts",
        )
