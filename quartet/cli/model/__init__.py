"""`quartet model`: download, import and list models."""

import click

from quartet.cli.group import CommandGroup
from quartet.cli.model.get import get
from quartet.cli.model.importing import import_
from quartet.cli.model.listing import list_


@click.group(name="model", cls=CommandGroup)
def command() -> None:
    """Download, import and list models."""


for part in (get, import_, list_):
    command.add_command(part)
