"""`quartet ledger upgrade` and `gc`: maintenance of old and long runs."""

import json
from contextlib import closing
from pathlib import Path

import click

from quartet.cli.parameters import JSON, RUN
from quartet.terminal.say import say


@click.command(short_help="Upgrade an older ledger.")
@RUN
@JSON
def upgrade(run: Path, as_json: bool) -> None:
    """Upgrade the ledger of RUN to the schema of this Quartet. RUN must not be live.

    This cannot be undone: older versions of Quartet cannot open the run afterwards.
    """
    from quartet.ledger import Ledger
    from quartet.ledger.schema import SCHEMA_VERSION
    from quartet.run.run_dir import RunLock

    _require_ledger(run)
    with RunLock(run):
        Ledger.open(run, upgrade=True).close()
    version = {"run": str(run), "schema_version": SCHEMA_VERSION}
    say(json.dumps(version) if as_json else f"{run} has schema version {SCHEMA_VERSION}")


@click.command(short_help="Delete blobs without references.")
@RUN
@JSON
def gc(run: Path, as_json: bool) -> None:
    """Delete the blobs to which no trajectory and no unfinished rollout of RUN refers. RUN must not be live.

    Crashes and disk budgets leave such blobs. The file of a SQLite ledger keeps its size, and its free pages are
    reused.
    """
    from quartet.ledger import Ledger
    from quartet.run.run_dir import RunLock
    from quartet.terminal.progress import Watched

    _require_ledger(run)
    with RunLock(run), closing(Ledger.open(run)) as ledger, Watched("blobs deleted", quiet=as_json) as watched:
        deleted = ledger.disk.collect_garbage(watched)
    say(json.dumps({"deleted": deleted}) if as_json else f"{deleted} blobs deleted")


def _require_ledger(run: Path) -> None:
    """Raise `LedgerError` if the folder has no ledger. Call it before the lock, whose file would mark a foreign folder
    as a run; `Ledger.open` verifies the content."""
    from quartet.ledger.database import view_database

    with closing(view_database(run)) as database:
        database.check()
