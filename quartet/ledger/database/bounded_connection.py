"""A connection of psycopg whose every wait is bounded by the patience of the process (`patience.py`)."""

from typing import Any, TypeVar

import psycopg
from psycopg import waiting
from psycopg.abc import PQGen

from quartet.ledger.database.patience import PATIENCE, Wait

T = TypeVar("T")
INTERVAL_SECONDS = 0.1
"""A wait looks this often at the patience, and lets signal handlers run."""


class NoAnswerError(psycopg.OperationalError):
    """The patience is exhausted."""


class BoundedConnection(psycopg.Connection[Any]):
    """Raises `NoAnswerError` when the server does not answer in time. The connection is closed then: the answer to
    what was given up may still come."""

    server = "PostgreSQL"
    """Name of the database in reports; it holds no password."""

    @classmethod
    def to(cls, server: str, *arguments: Any, **parameters: Any) -> "BoundedConnection":
        """Connect. Raises `NoAnswerError` at once when the process stops and the server was silent before."""
        if not PATIENCE.left_seconds:
            raise NoAnswerError("the server does not answer, and this process was asked to stop")
        connection = cls.connect(*arguments, **parameters)
        connection.server = server
        return connection

    def wait(self, gen: PQGen[T], *_: Any, **__: Any) -> T:
        try:
            return waiting.wait(_bounded(gen, self.server), self.pgconn.socket, interval=INTERVAL_SECONDS)
        except BaseException as error:
            if isinstance(error, NoAnswerError) or not isinstance(error, psycopg.Error):  # or a signal's handler raised
                self.pgconn.finish()
            raise


def _bounded(gen: PQGen[T], server: str) -> PQGen[T]:
    """The same steps as `gen`, and a `NoAnswerError` between two of them when the patience is exhausted."""
    wait: Wait | None = None  # begins with the first interval without an answer: most waits have none
    try:
        state = next(gen)
        while True:
            ready = yield state
            if not ready:
                wait = wait or Wait(server)
                if wait.is_over():
                    raise NoAnswerError(f"the server gave no answer for {wait.seconds:.0f} s")
            state = gen.send(ready)
    except StopIteration as done:
        PATIENCE.server_is_silent = False
        if wait:
            wait.answered()
        return done.value
