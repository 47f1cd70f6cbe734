"""Displays: what each session of an environment host shows at present, in files of the run for people to watch.

A session replaces its file `displays/HOST/LANE.msgpack` at most once per `PERIOD_SECONDS`, so that many short steps
cost little.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from quartet.files.disk import whole_file
from quartet.types import Observation

FOLDER = "displays"
PERIOD_SECONDS = 1.0
MAX_TEXT_CHARACTERS = 4000


class Display(msgspec.Struct, frozen=True, kw_only=True):
    """Newest observation of one session."""

    host: str
    """Name of the environment host, for example `env`."""
    lane: str
    """Row of the session in the timeline, for example `session 0`."""
    trace: str
    """Rollout and attempt, for example `rollout 3.1`; empty if the client names none."""
    task: str
    """Key of the task."""
    turn: int
    """Number of steps of the episode so far."""
    ended: bool
    at: float
    """Time of the observation, in seconds since the epoch."""
    goal: str
    text: str
    """Text of the observation, cut at `MAX_TEXT_CHARACTERS`."""
    picture: bytes
    """Encoded picture of the screen; empty if none was taken."""


class Displays:
    """Writer of the displays of the environment host `host`; it removes those of the host's earlier processes."""

    def __init__(self, run_dir: Path, host: str = "env", clock: Callable[[], float] = time.time) -> None:
        self._host, self._folder, self._clock = host, run_dir / FOLDER / host, clock
        self._written: dict[str, Display] = {}
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.parent.mkdir(mode=0o700, exist_ok=True)
        self._folder.mkdir(mode=0o700)

    def show(self, lane: str, observation: Observation, *, trace: str, task: str, turn: int, ended: bool) -> None:
        """Write the observation of a session, unless its file is new. The first and the last observation of an episode
        are always written."""
        now, last = self._clock(), self._written.get(lane)
        if last and turn and not ended and last.at <= now < last.at + PERIOD_SECONDS:
            return
        pictures = observation.pictures
        display = Display(
            host=self._host,
            lane=lane,
            trace=trace,
            task=task,
            turn=turn,
            ended=ended,
            at=now,
            goal=observation.goal or (last.goal if last and last.trace == trace else ""),
            text=observation.text[:MAX_TEXT_CHARACTERS],
            picture=pictures[-1].data if pictures else b"",
        )
        with whole_file(self._file(lane)) as fresh:
            fresh.write_bytes(msgspec.msgpack.encode(display))
        self._written[lane] = display

    def remove(self, lane: str) -> None:
        """Remove the display of a session whose client has left."""
        self._written.pop(lane, None)
        self._file(lane).unlink(missing_ok=True)

    def _file(self, lane: str) -> Path:
        return self._folder / _file_name(lane)


def read_displays(run_dir: Path) -> list[Display]:
    """Return the displays of a run, in the order of their hosts and lanes."""
    files = sorted(_files(run_dir), key=lambda file: (file.parent, len(file.name), file.name))
    return [display for file in files if (display := _read(file))]


def read_display(run_dir: Path, host: str, lane: str) -> Display | None:
    """Return the display of one session; None if there is none. Only a file that the folder lists is opened."""
    wanted = (host, _file_name(lane))
    return next((_read(path) for path in _files(run_dir) if (path.parent.name, path.name) == wanted), None)


def _files(run_dir: Path) -> Iterator[Path]:
    return (run_dir / FOLDER).glob("*/*.msgpack")


def _file_name(lane: str) -> str:
    return f"{lane.replace(os.sep, '-')}.msgpack"


def _read(path: Path) -> Display | None:
    """Return the display in a file; None if its session ended meanwhile, or if the file is damaged or of another
    version."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Display)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
