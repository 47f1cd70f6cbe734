"""Process of one sink: follow the run's files, send new records to the sink, and store the read position."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from quartet.config import Recipe
from quartet.config import Sink as SinkChoice
from quartet.errors import SetupError
from quartet.files.disk import whole_file
from quartet.files.lock import ProcessLock
from quartet.ledger import Ledger
from quartet.registry import build
from quartet.report.follow import Cursor, Follower
from quartet.report.sinks.base import Sink, check_package
from quartet.telemetry.presence import Presence

POLL_SECONDS = 2.0
BEAT_SECONDS = 4.0


async def run_sink(recipe: Recipe, run_dir: Path, stop: asyncio.Event, module: str) -> None:
    """Run the module `sink-NAME`: send new records until `stop` is set, then the remaining ones.

    An error of the sink ends the process.
    """
    name = module.partition("-")[2]
    with following(run_dir, name) as followed:
        sink: Sink = build(chosen_sink(recipe, name), recipe, run_dir)
        with closing(Ledger.open(run_dir)) as ledger:
            presence = Presence(ledger.modules, module, interval_seconds=BEAT_SECONDS)
            while not stop.is_set():
                presence.waits("new records", "a module writes some")
                await asyncio.to_thread(followed.show, sink)
                presence.beat()
                await _pause(stop)
        followed.show(sink)
        sink.close()


def chosen_sink(recipe: Recipe, name: str) -> SinkChoice:
    """Return the recipe's settings of a sink, or the defaults if the recipe does not name the sink.

    Raise `ConfigError` if there is no such sink, and `SetupError` if its package is not installed.
    """
    check_package(name)
    return next((sink for sink in recipe.observe.sinks if sink.name == name), SinkChoice(name=name))


@contextmanager
def following(run_dir: Path, name: str) -> Iterator["FollowedRun"]:
    """Yield a reader of the run's records that the sink has not received yet.

    A lock admits one process per run and sink, since two would send records twice. Raise `SetupError` if another
    process has the lock.
    """
    folder = run_dir / "sinks"
    folder.mkdir(exist_ok=True)

    def refusal(process: str) -> SetupError:
        return SetupError(
            f"another process already sends {run_dir} to the sink {name!r}: process {process}",
            f"end that process first; a live run with {name!r} in observe.sinks starts it itself",
        )

    with ProcessLock(folder / f"{name}.lock", refusal):
        yield FollowedRun(run_dir, name)


class FollowedRun:
    """Reader of a run for one sink; made by `following`.

    The read position is stored in the run's `sinks/NAME.json` after each write.
    """

    def __init__(self, run_dir: Path, name: str) -> None:
        self._file = run_dir / "sinks" / f"{name}.json"
        self._follower = Follower(run_dir, _read_cursor(self._file) if self._file.exists() else None)

    def show(self, sink: Sink) -> int:
        """Send the new records to `sink` and store the read position; return how many sums and spans were sent."""
        news = self._follower.read()
        if count := len(news.sums) + len(news.spans):
            sink.write(news)
            with whole_file(self._file) as fresh:
                fresh.write_bytes(msgspec.json.encode(self._follower.cursor))
        return count


def _read_cursor(file: Path) -> Cursor:
    """Return a stored cursor; in files of Quartet 0.1 it is only the read positions.

    Raise `SetupError` if the file is damaged.
    """
    try:
        fields = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        return msgspec.convert(fields if "places" in fields else {"places": fields}, Cursor)
    except msgspec.DecodeError as error:
        raise SetupError(
            f"{file}, the sink's read position, is damaged: {error}", "delete it to send all records again"
        ) from error


async def _pause(stop: asyncio.Event) -> None:
    waiting = asyncio.ensure_future(stop.wait())
    await asyncio.wait({waiting}, timeout=POLL_SECONDS)
    waiting.cancel()
