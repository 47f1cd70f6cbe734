"""Doorbells: whoever commits something that another module waits for rings, so that nobody has to look all the time.

A bell is a named pipe in the run's folder. A ring says nothing but "look again": the ledger alone knows what there is
to do. So a ring may be lost, or be one too many, and nothing goes wrong: who waits looks after `look_seconds` anyway.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal

LOG = logging.getLogger(__name__)
Role = Literal["manager", "worker", "engine", "trainer"]

LOOK_SECONDS = 1.0
"""On one machine, where every ring arrives: for what nobody commits, a lease or a deadline that runs out."""
LOOK_SECONDS_ELSEWHERE = 0.2
"""When modules may be on other machines, whose rings do not arrive, or the run's folder cannot hold a pipe."""
_ENOUGH_BYTES = 65_536
_UNHEARD = (errno.ENOENT, errno.ENXIO, errno.EAGAIN, errno.EPIPE)
"""Nobody has ever listened; nobody does now; full of rings that nobody has heard yet; who listened has just left."""


class Doorbells:
    """The bells of one run, for those who ring. Holds nothing open; safe to share between threads."""

    def __init__(self, folder: Path, look_seconds: float) -> None:
        self._folder, self._look_seconds = folder, look_seconds

    def ring(self, *roles: Role) -> None:
        """Wake who waits as one of `roles`, in a few microseconds. Never fails: they look without a ring too."""
        for role in roles:
            _ring(self._folder / role)

    def hang(self, role: Role) -> "Doorbell":
        """The bell of this process, which waits as `role`; close it when nobody waits any more."""
        self._folder.mkdir(exist_ok=True)
        return Doorbell(self._folder / role, self._look_seconds)


class Doorbell:
    """A bell that is listened to, as a context manager. What rings between two waits ends the next one at once.

    When two processes wait with the same role, a ring wakes at least one of them.
    """

    def __init__(self, path: Path, look_seconds: float) -> None:
        self._pipe = _listen(path)
        self._look_seconds = look_seconds if self._pipe is not None else min(look_seconds, LOOK_SECONDS_ELSEWHERE)

    async def wait(self, *also: asyncio.Event) -> None:
        """Wait until somebody rings or one of the events is set, but no longer than is good without a ring."""
        rung = asyncio.Event()
        ends = [asyncio.ensure_future(event.wait()) for event in (rung, *also)]
        try:
            with self._heard(rung):
                await asyncio.wait(ends, timeout=self._look_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    @contextmanager
    def _heard(self, rung: asyncio.Event) -> Iterator[None]:
        """A ring inside the block sets `rung`; after it the bell is still."""
        if self._pipe is None:
            yield
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe, rung.set)
        try:
            yield
        finally:
            loop.remove_reader(self._pipe)
        with suppress(BlockingIOError):
            os.read(self._pipe, _ENOUGH_BYTES)

    def __enter__(self) -> "Doorbell":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pipe is not None:
            os.close(self._pipe)  # the file stays: another process may listen too


def _listen(path: Path) -> int | None:
    """The pipe to read rings from; None, and a warning, where the file system has no pipes."""
    try:
        with suppress(FileExistsError):  # of one who listens too, or listened before
            os.mkfifo(path)
        # For writing too: a pipe whose last writer leaves would be readable for ever.
        return os.open(path, os.O_RDWR | os.O_NONBLOCK)
    except OSError as error:
        LOG.warning("no doorbell at %s, so this module looks every %g s: %s", path, LOOK_SECONDS_ELSEWHERE, error)
        return None


def _ring(path: Path) -> None:
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, b"\0")
        finally:
            os.close(pipe)
    except OSError as error:
        if error.errno not in _UNHEARD:  # what was committed is committed: who waits looks without a ring
            LOG.warning("cannot ring %s: %s", path, error)
