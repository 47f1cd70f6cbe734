"""`quartet env`: make, check, play and list environments."""

import click

from quartet.cli.env.check import check
from quartet.cli.env.listing import list_
from quartet.cli.env.new import new
from quartet.cli.env.play import play
from quartet.cli.group import CommandGroup


@click.group(name="env", cls=CommandGroup)
def command() -> None:
    """Make, check, play and list environments."""


for part in (new, check, play, list_):
    command.add_command(part)
