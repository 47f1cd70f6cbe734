"""`quartet ledger`: verify, audit or upgrade a run's ledger, export from it, import into it."""

import click

from quartet.cli.group import CommandGroup
from quartet.cli.ledger.audit import audit
from quartet.cli.ledger.check import check
from quartet.cli.ledger.export import export
from quartet.cli.ledger.importing import import_
from quartet.cli.ledger.upkeep import gc, upgrade


@click.group(name="ledger", cls=CommandGroup)
def command() -> None:
    """Verify, audit, upgrade or tidy the ledger of a run, export from it, import into it."""


for part in (check, audit, upgrade, export, import_, gc):
    command.add_command(part)
