"""Base of the ledger's parts: database, blobs, clocks, notifications, events, named values, and the current policy."""

import copy
import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.database import Database
from quartet.ledger.database.prepared import Prepared, inserted
from quartet.ledger.doorbell import LOOK_SECONDS, LOOK_SECONDS_ELSEWHERE, Doorbells
from quartet.ledger.rows import Event
from quartet.ledger.schema import events, run_values
from quartet.ledger.trajectory_store import TrajectoryStore
from quartet.types import MAIN

_EVENT = Prepared(inserted(events))
_VALUE = sa.select(run_values.c.value).where(run_values.c.key == sa.bindparam("key"))


class LedgerPart:
    """Base of the classes that `Ledger` is made of."""

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
        """Policy whose batches, versions and train steps the methods are about; see `of`."""
        self.trained, self.frozen = tuple(trained), tuple(frozen)
        """Names of the run's policies: the trained ones, and those that only answer requests."""
        self._database, self._store = database, store
        self._settled: dict[tuple[str, str], Any] = {}  # cache by value and policy: they never change once written
        self._clock: Callable[[], float] = clock or time.time  # Unix seconds, for display; it may jump
        self._now: Callable[[Connection], float] = (lambda _: clock()) if clock else database.now
        look_seconds = LOOK_SECONDS if database.on_one_machine else LOOK_SECONDS_ELSEWHERE
        self.doorbells = Doorbells(run_dir / "bells", look_seconds)

    def of(self, policy: str) -> Self:
        """Return the same ledger for another policy of the run. They share connections: close only one of them."""
        other = copy.copy(self)
        other.policy = policy
        return other

    def each(self) -> list[Self]:
        """Return the ledger for each trained policy."""
        return [self.of(policy) for policy in self.trained]

    def close(self) -> None:
        """Close this process's connections."""
        self._database.close()

    def read(self) -> AbstractContextManager[Connection]:
        """Open a consistent read snapshot for custom queries, such as those of `quartet.web.queries`."""
        return self._database.read()

    @property
    def store(self) -> TrajectoryStore:
        """Store of trajectories by blob digest."""
        return self._store

    def now(self) -> float:
        """Return the time in seconds of the clock for leases and deadlines (`Database.now`)."""
        with self._database.read() as connection:
            return self._now(connection)

    def event(self, kind: str, **fields: Any) -> None:
        """Record an event for display; `fields` must be JSON."""
        with self._database.write_beside() as connection:
            self._event(connection, kind, **fields)

    def events(self, limit: int = 100) -> list[Event]:
        """Return the newest `limit` events, newest first."""
        query = sa.select(events).order_by(events.c.id.desc()).limit(limit)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [Event(time=row.time, kind=row.kind, fields=row.fields) for row in rows]

    def value(self, key: str, default: Any = None) -> Any:
        """Return a named value of the run (`training_seconds`, `stop_reason`, ...), or `default`."""
        with self._database.read() as connection:
            return self._value(connection, key, default)

    def set_value(self, key: str, value: Any) -> None:
        """Write a named value of the run; it must be JSON."""
        with self._database.write() as connection:
            self._set_value(connection, key, value)

    def enter_phase(self, phase: str) -> None:
        """Set the run's phase, one of those of `quartet.types.phase`."""
        self.set_value("phase", phase)
        self.doorbells.ring("manager")

    def request_stop(self, reason: str) -> None:
        """Request the end of the run; the first reason is kept. The supervisor acts on `stop_reason`."""
        with self._database.write() as connection:
            if self._value(connection, "stop_reason", None) is None:
                self._set_value(connection, "stop_reason", reason)
                self._event(connection, "stop", reason=reason)

    def stop_reason(self) -> str | None:
        """Return the reason of the requested stop, or None."""
        return self.value("stop_reason")

    def clear_stop(self) -> None:
        """Clear an earlier stop request, for a resume."""
        self.set_value("stop_reason", None)

    def _event(self, connection: Connection, kind: str, **fields: Any) -> None:
        _EVENT(connection, time=self._clock(), kind=kind, fields=json.dumps(fields))

    def _value(self, connection: Connection, key: str, default: Any) -> Any:
        row = connection.execute(_VALUE, {"key": key}).one_or_none()
        return default if row is None else row.value

    def _key(self, name: str) -> str:
        """Return the key of a value that the run stores per policy."""
        return name if self.policy == MAIN else f"{name}@{self.policy}"

    def _set_value(self, connection: Connection, key: str, value: Any) -> None:
        update = sa.update(run_values).where(run_values.c.key == key).values(value=value)
        if not connection.execute(update).rowcount:
            connection.execute(sa.insert(run_values).values(key=key, value=value))
