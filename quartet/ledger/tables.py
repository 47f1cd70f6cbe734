"""Creation of a ledger's tables."""

from sqlalchemy import Connection
from sqlalchemy.schema import CreateIndex, CreateTable

from quartet.ledger.schema import ONLY, metadata

_STATEMENTS: dict[str, list[str]] = {}
"""By kind of database. Compiling the statements takes longer than executing them."""


def create_tables(connection: Connection) -> None:
    """Create all tables and indexes of a new ledger."""
    dialect = connection.dialect
    if dialect.name not in _STATEMENTS:
        tables = metadata.sorted_tables
        indexes = [index for table in tables for index in table.indexes]
        own = [index for index in indexes if index.info.get(ONLY, dialect.name) == dialect.name]
        own.sort(key=lambda index: str(index.name))
        elements = [*map(CreateTable, tables), *map(CreateIndex, own)]
        _STATEMENTS[dialect.name] = [str(element.compile(dialect=dialect)) for element in elements]
    for statement in _STATEMENTS[dialect.name]:
        connection.exec_driver_sql(statement)
