"""Heartbeats of the modules: state, current wait, and URL. Implements `telemetry.presence.ReportSink`."""

import os

import sqlalchemy as sa

from quartet.ledger.rows import ModuleRow
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import modules


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
        }
        with self._db.write_beside() as connection:
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
        """Return every module that ever reported, sorted by name."""
        with self._db.read() as connection:
            rows = connection.execute(sa.select(modules).order_by(modules.c.module)).all()
        return [
            ModuleRow(
                module=row.module,
                state=row.state,
                waiting_for=row.waiting_for,
                ends_when=row.ends_when,
                since=row.since,
                beat_at=row.beat_at,
                waiting_seconds=row.former_waiting_seconds + row.waiting_seconds,
                alive_seconds=row.former_alive_seconds + row.beat_at - row.started_at,
                url=row.url,
                pid=row.pid,
            )
            for row in rows
        ]

    def url(self, module: str) -> str | None:
        """Return the URL that a module reported, or None. The module may have died since."""
        query = sa.select(modules.c.url).where(modules.c.module == module)
        with self._db.read() as connection:
            return connection.execute(query).scalar() or None
