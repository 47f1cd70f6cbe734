"""Raw results of experiments: one JSON line per run in `benchmarks/results/NAME.jsonl`, with commit, machine and load.

`benchmarks/tables.py` makes the documentation's tables and figures from these files.
"""

import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, TypeVar

import click
import msgspec
import psutil

FOLDER = Path(__file__).parent / "results"
COMMIT_VARIABLE = "QUARTET_COMMIT"
"""Environment variable with the commit of a copy that has no Git history."""
results_option = click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    help="Folder of raw results, one line per run; default: benchmarks/results.",
)
T = TypeVar("T")
Key = dict[str, Any]
"""Values that identify a run within its file: variant, seed, ..."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """Circumstances of a measurement: commit, command, machine, load."""

    commit: str
    """Git commit; it ends with `-dirty` if tracked files differed from the commit."""
    command: str
    machine: str
    load_average_1min: float
    time: float
    """Time of the measurement in Unix seconds."""


class RawResults(Generic[T]):
    """File with the runs of one experiment; all results have the same type."""

    def __init__(self, file: Path, kind: type[T]) -> None:
        self.file = file
        self._decoder = msgspec.json.Decoder(_line_of(kind))

    def begin(self) -> None:
        """Delete the results of an earlier run of the experiment."""
        self.file.unlink(missing_ok=True)

    def add(self, key: Key, result: T, how: Taken | None = None) -> None:
        line = {"key": key, "result": result, "taken": how or taken()}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def read(self) -> list[tuple[Key, T]]:
        """Return all runs in the order in which they were added; an empty list if there is no file."""
        if not self.file.exists():
            return []
        lines = map(self._decoder.decode, self.file.read_bytes().splitlines())
        return [(line.key, line.result) for line in lines]


def taken(command: Sequence[str] = ()) -> Taken:
    """Return the circumstances of a measurement that is made now, by `command` or by this process."""
    return Taken(
        commit=current_commit(),
        command=shlex.join(command or ["python", "-m", _module(Path(sys.argv[0])), *sys.argv[1:]]),
        machine=_machine(),
        load_average_1min=round(psutil.getloadavg()[0], 2),
        time=round(time.time(), 1),
    )


def require_commit(folder: Path) -> None:
    """Raise `click.ClickException` if results in the published folder would not belong to a commit."""
    commit = current_commit()
    if folder.resolve() == FOLDER.resolve() and (commit == "unknown" or commit.endswith("-dirty")):
        raise click.ClickException(f"the code is {commit}: commit first, or choose another folder with --results")


def _module(script: Path) -> str:
    name = script.parent.name if script.stem == "__main__" else script.stem
    return f"benchmarks.{name}"


def _line_of(kind: type[T]) -> Any:
    return msgspec.defstruct("Line", [("key", Key), ("result", kind), ("taken", Taken)])


@cache
def current_commit() -> str:
    """Return the commit, read once: later changes of the files do not affect this process.

    In a copy of the files without Git history it is the one that the environment variable `QUARTET_COMMIT` names.
    Nothing checks that name, so copy a commit without changes. If there is a history that Git cannot read, the commit
    is `unknown`.
    """
    root = FOLDER.parents[1]
    if not (root / ".git").exists():
        return os.environ.get(COMMIT_VARIABLE, "unknown")

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", ":(exclude)benchmarks/results")
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


@cache
def _machine() -> str:
    cpu_info = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in cpu_info.read_text().splitlines() if "model name" in line]
        if (cpu_info.exists())
        else []
    )
    processor = names[0] if names else platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {version('torch')}"
