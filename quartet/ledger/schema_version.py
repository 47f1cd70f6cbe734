"""Check the schema version of a stored ledger, and upgrade an older one on request."""

from shlex import quote

import sqlalchemy as sa

from quartet.errors import LedgerError
from quartet.ledger.counters import keep_counts
from quartet.ledger.migrations import MIGRATIONS, migrate
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import SCHEMA_VERSION
from quartet.ledger.transitions import guard
from quartet.ledger.values import read_value, write_value

_KEY = "schema_version"


def check_version(db: RunDatabase, upgrade: bool) -> None:
    """Raise `LedgerError` unless the schema has the version of this Quartet. With `upgrade` an older schema is migrated
    first."""
    with db.read() as connection:
        made = sa.inspect(connection).has_table("run")
    if not made:
        raise LedgerError(
            f"the ledger of {db.run_dir} has no tables: the process that created it was stopped early",
            "start the run again with --fresh; the ledger held no data",
        )
    version = db.value(_KEY, 0)
    if version == SCHEMA_VERSION:
        return
    if version > SCHEMA_VERSION or version not in MIGRATIONS:
        advice = "use the Quartet that wrote it" + (" or a newer one" if version > SCHEMA_VERSION else "")
    elif not upgrade:
        advice = f"upgrade it with `quartet ledger upgrade {quote(str(db.run_dir))}`, or by resuming the run"
    else:
        return _upgrade(db)
    raise LedgerError(
        f"the ledger of {db.run_dir} has schema version {version}, but this Quartet reads version {SCHEMA_VERSION}",
        advice,
    )


def _upgrade(db: RunDatabase) -> None:
    with db.write() as connection:
        version = read_value(connection, _KEY, 0)  # another process may have upgraded it
        migrate(connection, version, SCHEMA_VERSION)
        guard(connection)
        keep_counts(connection)
        write_value(connection, _KEY, SCHEMA_VERSION)
        db.record(connection, "ledger_upgraded", from_version=version, to_version=SCHEMA_VERSION)
