"""Check the ledger's database: SQLite, or the server that the recipe names."""

import sqlite3
from collections.abc import Iterator

from quartet.doctor.base import Doctor, Finding, Place, lacks, ok, refused
from quartet.errors import QuartetError
from quartet.ledger.database.postgresql import server_version

OLDEST_SQLITE = (3, 35, 0)
"""Oldest supported version of SQLite, from 2021: the first with RETURNING."""


class Database(Doctor):
    """Check the ledger's database: SQLite, or the server that the recipe names."""

    before_training = True

    def examine(self, place: Place) -> Iterator[Finding]:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            yield lacks(f"SQLite {sqlite3.sqlite_version}", "use a Python that was built with SQLite 3.35 or newer")
        else:
            yield ok(f"SQLite {sqlite3.sqlite_version}")
        if place.recipe and (url := place.recipe.ledger.url):
            try:
                yield ok(f"PostgreSQL {server_version(url)} answers at {url}")
            except QuartetError as error:
                yield refused(error)
