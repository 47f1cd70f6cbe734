"""Work that a database does, independent of the machine's speed: the plan of every statement, and what was read.

SQLite counts the instructions of its virtual machine. PostgreSQL reports the plan of each statement that it has run,
with the rows that each step has read; its extension `auto_explain` is part of the server.
"""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from sqlalchemy import event, pool

from quartet.ledger.schema import metadata

INSTRUCTIONS_PER_COUNT = 10
LARGE = metadata.tables.keys() - {"run", "modules", "families", "evaluations", "group_sizes"}
"""Tables that grow with the number of rollouts."""
PARTIAL = {
    str(index.name)
    for table in metadata.tables.values()
    for index in table.indexes
    if index.dialect_options["sqlite"]["where"] is not None
}
"""Indexes of the few rows that meet a condition. SQLite calls it a scan if a query reads all of them."""
MANY_ROWS = 500
"""Number of rows of a table that PostgreSQL may read without an index: it reads a table of a few pages as a whole."""
_SCAN = re.compile(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?")


class Statement(Struct, frozen=True, kw_only=True):
    """One statement that the database has run."""

    text: str
    scanned: list[str]
    """Large tables that the statement read as a whole."""
    rows: int = 0
    """Number of rows that the statement read by indexes (PostgreSQL)."""
    pages: int = 0
    """Number of pages of tables and indexes that the statement read (PostgreSQL)."""


class Work(Struct, kw_only=True):
    """What all connections did that were opened inside `recorded`."""

    statements: list[Statement] = []
    instructions: int = 0
    """Number of instructions of SQLite's virtual machine."""

    @property
    def rows(self) -> int:
        return sum(statement.rows for statement in self.statements)

    @property
    def scans(self) -> list[Statement]:
        """Statements that read a large table as a whole."""
        return [statement for statement in self.statements if statement.scanned]

    def most_pages(self) -> dict[str, int]:
        """Return the largest number of pages that a statement read, by its text."""
        most: dict[str, int] = {}
        for statement in self.statements:
            most[statement.text] = max(statement.pages, most.get(statement.text, 0))
        return most

    def begin(self) -> None:
        """Forget what was done so far."""
        self.statements, self.instructions = [], 0


@contextmanager
def recorded() -> Iterator[Work]:
    """Record the work of the connections that this process opens inside the block.

    A PostgreSQL server reports plans if its URL comes from `explained_url`.
    """
    work = Work()

    def watch(connection: Any, _record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            _watch_sqlite(connection, work)
        else:
            connection.add_notice_handler(lambda notice: _note_plan(notice.message_primary or "", work))

    event.listen(pool.Pool, "connect", watch)
    try:
        yield work
    finally:
        event.remove(pool.Pool, "connect", watch)


def explained_url(url: str) -> str:
    """Create a database on a private server whose connections report the plan of every statement; return its URL."""
    import psycopg  # an extra that only these runs need

    reports = {
        "session_preload_libraries": "auto_explain",
        "log_min_messages": "fatal",
        "auto_explain.log_min_duration": "0",
        "auto_explain.log_analyze": "on",
        "auto_explain.log_timing": "off",
        "auto_explain.log_buffers": "on",
        "auto_explain.log_format": "json",
        "auto_explain.log_level": "notice",
    }
    with psycopg.connect(url, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = 'explained'").fetchone():
            connection.execute("CREATE DATABASE explained")
        for name, value in reports.items():
            connection.execute(f"ALTER DATABASE explained SET {name} = '{value}'".encode())
    return url.replace("/postgres?", "/explained?")


def _watch_sqlite(connection: sqlite3.Connection, work: Work) -> None:
    def count() -> int:
        work.instructions += INSTRUCTIONS_PER_COUNT
        return 0

    def note(text: str) -> None:
        if not re.match(r"SELECT|INSERT|UPDATE|DELETE|WITH", text):
            return  # the end of a transaction, or a statement of a trigger
        # Without both handlers, because this statement is not part of the work.
        connection.set_trace_callback(None)
        connection.set_progress_handler(None, 0)
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}")]
        scans = filter(None, map(_SCAN.match, plan))
        scanned = [scan[1] for scan in scans if scan[1] in LARGE and scan[2] not in PARTIAL]
        # The plan of an insert has the checks of foreign keys, which are not run for a new row.
        work.statements.append(Statement(text=text, scanned=[] if " VALUES " in text else scanned))
        watch()

    def watch() -> None:
        connection.set_trace_callback(note)
        connection.set_progress_handler(count, INSTRUCTIONS_PER_COUNT)

    watch()


def _note_plan(message: str, work: Work) -> None:
    _, found, plan = message.partition("plan:\n")
    if not found:
        return
    said = json.loads(plan)
    steps = [step for step in _steps(said["Plan"]) if "Relation Name" in step]
    read = {step["Relation Name"]: _rows_read(step) for step in steps if step["Node Type"] == "Seq Scan"}
    scanned = [table for table, rows in read.items() if table in LARGE and rows > MANY_ROWS]
    rows = sum(_rows_read(step) for step in steps if step["Node Type"] != "Seq Scan")
    pages = said["Plan"]["Shared Hit Blocks"] + said["Plan"]["Shared Read Blocks"]
    work.statements.append(Statement(text=said["Query Text"], scanned=scanned, rows=rows, pages=pages))


def _steps(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _steps(below)


def _rows_read(step: dict[str, Any]) -> int:
    """Return the number of rows that a step has read, also those that it left out."""
    left_out = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    per_loop = step["Actual Rows"] + sum(step.get(name, 0) for name in left_out)
    return round(per_loop * step["Actual Loops"])
