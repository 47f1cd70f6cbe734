"""Heartbeats of the modules: state, current wait, URL and capacity. Implements `telemetry.presence.ReportSink`.

A heartbeat makes its module a member of the run until a deadline. Members are found by their role, so engines, workers
and environment hosts may join and leave a run.
"""

import itertools
import os
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.rows import Member, ModuleRow
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import modules
from quartet.types.phase import STARTING

LIVE_SECONDS = 20.0
"""Time without heartbeats after which a module is no member any more. A working module sends one per second."""


class Modules:
    """Modules of the run by their names."""

    def __init__(self, db: RunDatabase) -> None:
        self._db = db

    def report(
        self,
        module: str,
        *,
        state: str,
        waiting_for: str,
        ends_when: str,
        since: float,
        waiting_seconds: float,
        url: str,
        capacity: int = 0,
    ) -> None:
        """Record a heartbeat of the calling process. Waiting times add up over all processes of a module."""
        now, pid = self._db.clock(), os.getpid()
        said = {
            "pid": pid,
            "url": url,
            "state": state,
            "waiting_for": waiting_for,
            "ends_when": ends_when,
            "since": since,
            "beat_at": now,
            "waiting_seconds": waiting_seconds,
            "capacity": capacity,
        }
        with self._db.write_beside() as connection:
            said["live_until"] = self._db.now(connection) + LIVE_SECONDS
            mine = sa.select(modules).where(modules.c.module == module).with_for_update()
            before = connection.execute(mine).one_or_none()
            if before is None:
                first = {
                    "module": module,
                    "started_at": now,
                    "former_waiting_seconds": 0.0,
                    "former_alive_seconds": 0.0,
                }
                connection.execute(sa.insert(modules).values(**said, **first))
                return
            # Process ids may be reused after a container restart, so a decrease of the waited seconds is checked too.
            if before.pid != pid or waiting_seconds < before.waiting_seconds:
                said["started_at"] = now
                said["former_waiting_seconds"] = before.former_waiting_seconds + before.waiting_seconds
                said["former_alive_seconds"] = before.former_alive_seconds + before.beat_at - before.started_at
            connection.execute(sa.update(modules).where(modules.c.module == module).values(**said))

    def all(self) -> list[ModuleRow]:
        """Return every module that ever reported, sorted by name. The times of a member are by the wall clock of this
        process, also if the clock of the module's machine is wrong."""
        with self._db.read() as connection:
            rows = connection.execute(sa.select(modules).order_by(modules.c.module)).all()
            wall_minus_lease_clock = self._db.clock() - self._db.now(connection)
        late = [self._late_seconds(row, wall_minus_lease_clock) for row in rows]
        return [
            ModuleRow(
                module=row.module,
                state=row.state,
                waiting_for=row.waiting_for,
                ends_when=row.ends_when,
                since=row.since + behind,
                beat_at=row.beat_at + behind,
                stored_beat=row.beat_at,
                waiting_seconds=row.former_waiting_seconds + row.waiting_seconds,
                alive_seconds=row.former_alive_seconds + row.beat_at - row.started_at,
                url=row.url,
                pid=row.pid,
            )
            for row, behind in zip(rows, late, strict=True)
        ]

    def _late_seconds(self, row: Any, wall_minus_lease_clock: float) -> float:
        """Return how far the wall clock of a member's machine is behind that of this process; 0 on one machine.

        A member's heartbeat has a time of the clock of leases too. On one machine that clock restarts at a reboot.
        """
        if self._db.database.on_one_machine or row.live_until is None:
            return 0.0
        return wall_minus_lease_clock + row.live_until - LIVE_SECONDS - row.beat_at

    def members(self, role: str) -> list[Member]:
        """Return the members of one role, `engine`, `env` or `worker`, sorted by name."""
        with self._db.read() as connection:
            return [
                Member(module=row.module, url=row.url, capacity=row.capacity)
                for row in connection.execute(_members(role).order_by(modules.c.module))
            ]

    def sessions(self) -> int:
        """Return the number of sessions that all environment hosts of the run serve at once; 0 before any has
        started."""
        return sum(member.capacity for member in self.members("env"))

    def join(self, role: str, taken: Collection[str]) -> str:
        """Reserve a name for a module that joins the run, such as `engine-3`, and return it.

        `taken` are the names of the recipe's modules, which need not have reported yet.
        """
        with self._db.write() as connection:
            used = {*taken, *connection.execute(sa.select(modules.c.module).where(_of_role(role))).scalars()}
            name = next(name for n in itertools.count(2) if (name := f"{role}-{n}") not in used)
            now = self._db.clock()
            durations = dict.fromkeys(("waiting_seconds", "former_waiting_seconds", "former_alive_seconds"), 0.0)
            empty = {"url": "", "state": STARTING, "waiting_for": "", "ends_when": ""}
            times = {"since": now, "beat_at": now, "started_at": now, **durations}
            connection.execute(sa.insert(modules).values(module=name, pid=os.getpid(), **empty, **times))
            self._db.record(connection, "module_joined", module=name)
        return name

    def leave(self, module: str) -> None:
        """End the membership of a module that stops, so that others stop using it at once."""
        with self._db.write() as connection:
            self._end(connection, modules.c.module == module)

    def expire(self) -> list[str]:
        """End the membership of modules whose heartbeats have stopped for too long. Return their names."""
        with self._db.read() as connection:
            silent = modules.c.live_until < self._db.now(connection)
            if not connection.execute(sa.select(modules.c.module).where(silent).limit(1)).first():
                return []
        with self._db.write() as connection:
            return self._end(connection, silent)

    def end_all(self) -> None:
        """End all memberships. Call it when a run starts or resumes, when no module is alive."""
        with self._db.write() as connection:
            connection.execute(sa.update(modules).values(live_until=None))

    def _end(self, connection: Connection, condition: sa.ColumnElement[bool]) -> list[str]:
        ended = connection.execute(sa.select(modules.c.module).where(condition, modules.c.live_until.is_not(None)))
        names = sorted(ended.scalars())
        connection.execute(sa.update(modules).where(modules.c.module.in_(names)).values(live_until=None))
        for name in names:
            self._db.record(connection, "module_left", module=name)
        return names

    def url(self, module: str) -> str | None:
        """Return the URL that a module reported, or None. The module may have died since."""
        query = sa.select(modules.c.url).where(modules.c.module == module)
        with self._db.read() as connection:
            return connection.execute(query).scalar() or None


def _of_role(role: str) -> sa.ColumnElement[bool]:
    """Condition for the modules `ROLE`, `ROLE-2`, ..."""
    return sa.or_(modules.c.module == role, modules.c.module.startswith(f"{role}-", autoescape=True))


def _members(role: str) -> sa.Select[Any]:
    return sa.select(modules).where(_of_role(role), modules.c.live_until.is_not(None))


def member_names(connection: Connection, role: str) -> list[str]:
    """Return the names of the members of one role, inside the caller's transaction."""
    return list(connection.execute(_members(role).with_only_columns(modules.c.module)).scalars())


def reachable_members(connection: Connection, role: str) -> list[str]:
    """Return the names of the members of one role that have reported a URL, inside the caller's transaction."""
    reachable = _members(role).where(modules.c.url != "")
    return list(connection.execute(reachable.with_only_columns(modules.c.module)).scalars())
