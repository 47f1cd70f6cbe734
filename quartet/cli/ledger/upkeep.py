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
    """Upgrade the ledger of RUN, which must not be live, to the schema of this Quartet.

    This cannot be undone: an older Quartet will reject the run.
    """
    from quartet.ledger import Ledger
    from quartet.ledger.database import find_database
    from quartet.ledger.schema import SCHEMA_VERSION
    from quartet.run.run_dir import RunLock

    find_database(run).check()
    with RunLock(run):
        Ledger.open(run, upgrade=True).close()
    version = {"run": str(run), "schema_version": SCHEMA_VERSION}
    say(json.dumps(version) if as_json else f"{run} has schema version {SCHEMA_VERSION}")


@click.command(short_help="Delete blobs without references.")
@RUN
@JSON
def gc(run: Path, as_json: bool) -> None:
    """Delete the blobs of RUN, which must not be live, to which no trajectory refers.

    Crashes and disk budgets leave such blobs; all others are kept. The file of a SQLite ledger keeps its size, and its
    free pages are used again.
    """
    from quartet.ledger import Ledger
    from quartet.run.run_dir import RunLock
    from quartet.terminal.progress import Watched

    with RunLock(run), closing(Ledger.open(run)) as ledger, Watched("blobs deleted", quiet=as_json) as watched:
        deleted = ledger.collect_garbage(watched)
    say(json.dumps({"deleted": deleted}) if as_json else f"{deleted} blobs deleted")
