"""A psycopg connection whose every wait is bounded by the process's database timeout (`answer_timeout.py`)."""

from typing import Any, TypeVar

import psycopg
from psycopg import waiting
from psycopg.abc import PQGen

from quartet.ledger.database.answer_timeout import ANSWER_TIMEOUT, Wait

T = TypeVar("T")
INTERVAL_SECONDS = 0.1
"""Interval at which a wait checks the timeout and lets signal handlers run."""


class NoAnswerError(psycopg.OperationalError):
    """The server did not answer within the timeout."""


class BoundedConnection(psycopg.Connection[Any]):
    """Connection that raises `NoAnswerError` if the server does not answer in time, and then closes.

    It must not be reused, because the answer to the abandoned statement may still arrive.
    """

    server = "PostgreSQL"
    """Name of the database in reports, without a password."""

    @classmethod
    def to(cls, server: str, *arguments: Any, **parameters: Any) -> "BoundedConnection":
        """Connect. Raises `NoAnswerError` at once if the process is stopping and the server did not answer before."""
        if not ANSWER_TIMEOUT.left_seconds:
            raise NoAnswerError("the server does not answer, and this process was asked to stop")
        connection = cls.connect(*arguments, **parameters)
        connection.server = server
        return connection

    def wait(self, gen: PQGen[T], *_: Any, **__: Any) -> T:
        try:
            return waiting.wait(_bounded(gen, self.server), self.pgconn.socket, interval=INTERVAL_SECONDS)
        except BaseException as error:
            if isinstance(error, NoAnswerError) or not isinstance(error, psycopg.Error):  # or a signal handler raised
                self.pgconn.finish()
            raise


def _bounded(gen: PQGen[T], server: str) -> PQGen[T]:
    """Run the steps of `gen`, and raise `NoAnswerError` between two of them after the timeout."""
    wait: Wait | None = None  # created in the first interval without an answer: most waits have none
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
        ANSWER_TIMEOUT.server_is_silent = False
        if wait:
            wait.answered()
        return done.value
