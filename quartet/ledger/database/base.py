"""What the ledger asks of a database: write transactions that see each other's results, and consistent snapshots."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Literal

import sqlalchemy as sa
from sqlalchemy import exc

from quartet.crash_points import transaction_crash_point

Durability = Literal["process", "full"]
Access = Literal["read", "beside", "alone"]
"""What a transaction may do, and what may run at the same time: see `Database.read`, `write_beside` and `write`."""


class Database(ABC):
    """Transactions on one run's tables; safe to share between threads, not across a fork."""

    on_one_machine: ClassVar[bool]
    """Whether all who open it are on one machine."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """One write transaction. No other one runs at the same time, so what it reads holds until it commits."""
        with self._explained(), self._transaction("alone") as connection:
            yield connection
            transaction_crash_point("before")
        transaction_crash_point("after")

    @contextmanager
    def write_beside(self) -> Iterator[sa.Connection]:
        """One write transaction that others like it may run beside, where the database can; never beside `write`.

        It must lock the rows that it reads in order to change them (`with_for_update`).
        """
        with self._explained(), self._transaction("beside") as connection:
            yield connection
            transaction_crash_point("before")
        transaction_crash_point("after")

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """One consistent snapshot."""
        with self._explained(), self._transaction("read") as connection:
            yield connection

    @abstractmethod
    def now(self, connection: sa.Connection) -> float:
        """Seconds of the clock that leases and deadlines are measured by: the same for all processes of a run, and
        without any relation to the time of day. A value means nothing after a resume."""

    def close(self) -> None:
        """Close all connections of this process."""
        self._engine.dispose()

    @abstractmethod
    def check(self) -> None:
        """Raise `LedgerError` when there is no intact database."""

    def shorten_log(self) -> bool:
        """Keep the database's write-ahead log bounded, if that is ours to do; False when somebody prevents it."""
        return True

    @abstractmethod
    def drop(self) -> None:
        """Delete all of the run's tables, for good."""

    @abstractmethod
    def _transaction(self, access: Access) -> AbstractContextManager[sa.Connection]:
        """Begin; commit at the end of the block, roll back when it raises."""

    @abstractmethod
    def _explain(self, error: Any) -> None:
        """Raise the error a person can act on, given the driver's own; return when it is a bug of ours."""

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except exc.DatabaseError as error:
            self._explain(error.orig)
            raise
        except self._engine.dialect.loaded_dbapi.DatabaseError as error:  # of a prepared statement
            self._explain(error)
            raise
