"""The process of one sink: follow the run's files, hand over what is new, remember how far it got."""

import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from quartet.config import Recipe
from quartet.config import Sink as SinkChoice
from quartet.errors import SetupError
from quartet.files.disk import whole_file
from quartet.ledger import Ledger
from quartet.registry import build
from quartet.report.follow import Cursor, Follower
from quartet.report.sinks.base import Sink, check_package
from quartet.telemetry.presence import Presence

LOOK_SECONDS = 2.0
BEAT_SECONDS = 4.0


async def run_sink(recipe: Recipe, run_dir: Path, stop: asyncio.Event, module: str) -> None:
    """The module `sink-NAME`: show the run until `stop`, and what is left then. Whatever the sink raises ends it."""
    name = module.partition("-")[2]
    with following(run_dir, name) as followed:
        sink: Sink = build(chosen_sink(recipe, name), recipe, run_dir)
        with closing(Ledger.open(run_dir)) as ledger:
            presence = Presence(ledger, module, interval_seconds=BEAT_SECONDS)
            while not stop.is_set():
                presence.waits("new records", "a module writes some")
                await asyncio.to_thread(followed.show, sink)
                presence.beat()
                await _pause(stop)
        followed.show(sink)
        sink.close()


def chosen_sink(recipe: Recipe, name: str) -> SinkChoice:
    """Return a sink as the recipe sets it, or with its defaults where the recipe does not name it.

    Raises `ConfigError` or `SetupError` when it cannot be used.
    """
    check_package(name)
    return next((sink for sink in recipe.observe.sinks if sink.name == name), SinkChoice(name=name))


@contextmanager
def following(run_dir: Path, name: str) -> Iterator["FollowedRun"]:
    """The run as far as a sink has not shown it. Only one process at a time shows a run in a sink: what two read would
    be shown twice. Raises `SetupError` for the second one."""
    folder = run_dir / "sinks"
    folder.mkdir(exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SetupError(
                f"another process shows {run_dir} in the sink {name!r} already",
                f"a run with {name!r} in its observe.sinks does so by itself while it goes on; end the other one first",
            ) from error
        yield FollowedRun(run_dir, name)


class FollowedRun:
    """How far a sink has shown a run, in `sinks/NAME.json` of the run: what was shown is not shown again.

    Made by `following`.
    """

    def __init__(self, run_dir: Path, name: str) -> None:
        self._file = run_dir / "sinks" / f"{name}.json"
        cursor = msgspec.json.decode(self._file.read_bytes(), type=Cursor) if self._file.exists() else None
        self._follower = Follower(run_dir, cursor)

    def show(self, sink: Sink) -> int:
        """Hand over what is new; returns how many records and spans that were."""
        news = self._follower.read()
        if count := len(news.sums) + len(news.spans):
            sink.write(news)
            with whole_file(self._file) as fresh:
                fresh.write_bytes(msgspec.json.encode(self._follower.cursor))
        return count


async def _pause(stop: asyncio.Event) -> None:
    waiting = asyncio.ensure_future(stop.wait())
    await asyncio.wait({waiting}, timeout=LOOK_SECONDS)
    waiting.cancel()
