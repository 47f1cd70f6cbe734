"""The database that the parts of a ledger share, with its clocks, blobs, notifications, events and named values."""

import copy
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from quartet.ledger.database import Database
from quartet.ledger.database.prepared import Prepared, inserted
from quartet.ledger.notifications import POLL_SECONDS, POLL_SECONDS_WITHOUT_NOTIFICATIONS, Notifier
from quartet.ledger.schema import events
from quartet.ledger.trajectory_store import TrajectoryStore
from quartet.ledger.values import read_value, write_value
from quartet.types import MAIN

_EVENT = Prepared(inserted(events))


class RunDatabase:
    """The database of one run, as one of its policies uses it. Safe to share between threads."""

    def __init__(
        self,
        run_dir: Path,
        database: Database,
        store: TrajectoryStore,
        clock: Callable[[], float] | None,
        trained: Sequence[str] = (MAIN,),
        frozen: Sequence[str] = (),
    ) -> None:
        self.run_dir = run_dir
        self.policy = trained[0]
        """Policy whose batches, versions and train steps are read and written; see `of`."""
        self.trained, self.frozen = tuple(trained), tuple(frozen)
        self.database, self.store = database, store
        self.read, self.write, self.write_beside = database.read, database.write, database.write_beside
        self.vocabulary_sizes: dict[str, int | None] = {}
        """Cache of the policies' vocabulary sizes, by policy; a recorded size does not change."""
        self.clock: Callable[[], float] = clock or time.time
        """Clock in Unix seconds, for display; it may jump."""
        self.now: Callable[[Connection], float] = (lambda _: clock()) if clock else database.now
        """Clock in seconds for leases and deadlines; see `Database.now`."""
        poll_seconds = POLL_SECONDS if database.on_one_machine else POLL_SECONDS_WITHOUT_NOTIFICATIONS
        self.notifier = Notifier(run_dir / "notifications", poll_seconds)

    def of(self, policy: str) -> "RunDatabase":
        """Return the same database for another policy of the run. They share connections."""
        other = copy.copy(self)
        other.policy = policy
        return other

    def record(self, connection: Connection, kind: str, **fields: Any) -> None:
        """Record an event inside the caller's transaction; `fields` must be JSON."""
        _EVENT(connection, time=self.clock(), kind=kind, fields=json.dumps(fields))

    def event(self, kind: str, **fields: Any) -> None:
        """Record an event in a transaction of its own."""
        with self.write_beside() as connection:
            self.record(connection, kind, **fields)

    def value(self, key: str, default: Any = None) -> Any:
        """Return a named value of the run, or `default`."""
        with self.read() as connection:
            return read_value(connection, key, default)

    def set_value(self, key: str, value: Any) -> None:
        """Write a named value of the run; it must be JSON."""
        with self.write() as connection:
            write_value(connection, key, value)
