"""Statements of the hot path: written in SQLAlchemy, compiled once, run by the driver itself."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPICursor, Dialect


class Prepared:
    """A statement whose words never change, only its parameters.

    SQLAlchemy spends about 80 µs on a statement that it builds and looks up again, 10 on one that is text already, and
    the driver itself less than 1; an append has four. Values go to the driver as they are: JSON must be text. The
    result is the driver's own cursor, an error the driver's own error, which `Database` explains like any other.
    """

    def __init__(self, statement: sa.ClauseElement | Mapping[str, sa.ClauseElement]) -> None:
        """One statement for all databases, or one each by the name of its dialect."""
        self._statement = statement
        self._texts: dict[str, tuple[str, list[str] | None]] = {}

    def __call__(self, connection: sa.Connection, **parameters: Any) -> DBAPICursor:
        text, order = self._texts.get(connection.dialect.name) or self._compile(connection.dialect)
        values = parameters if order is None else tuple(parameters[name] for name in order)
        driver: Any = connection.connection.driver_connection
        return driver.execute(text, values)

    def _compile(self, dialect: Dialect) -> tuple[str, list[str] | None]:
        statement = self._statement[dialect.name] if isinstance(self._statement, Mapping) else self._statement
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, sa.sql.compiler.SQLCompiler)
        self._texts[dialect.name] = compiled.string, compiled.positiontup
        return self._texts[dialect.name]


def inserted(table: sa.Table, *, without: str = "id") -> sa.Insert:
    """An insert of a whole row but for the column that the database fills in: every column is a parameter."""
    return sa.insert(table).values(
        {column.name: sa.bindparam(column.name) for column in table.c if column.name != without}
    )
