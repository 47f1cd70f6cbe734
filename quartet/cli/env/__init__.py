"""`quartet env`: make, check, compare, play, serve and list environments."""

import click

from quartet.cli.env.check import check
from quartet.cli.env.compare import compare
from quartet.cli.env.listing import list_
from quartet.cli.env.new import new
from quartet.cli.env.play import play
from quartet.cli.env.serve import serve
from quartet.cli.group import CommandGroup


@click.group(name="env", cls=CommandGroup)
def command() -> None:
    """Make, check, compare, play, serve and list environments."""


for part in (new, check, compare, play, serve, list_):
    command.add_command(part)
