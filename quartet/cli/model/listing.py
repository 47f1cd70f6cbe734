"""`quartet model list`: list the models that a recipe can name."""

import json

import click

from quartet.cli.parameters import JSON
from quartet.terminal.say import say


@click.command(name="list", short_help="List the models that a recipe can name, and those to download.")
@JSON
def list_(as_json: bool) -> None:
    """List the models that a recipe can name, and those that `quartet model get` downloads."""
    from quartet.policy.download import DOWNLOADS
    from quartet.shipped import named_policies

    folders = {name: str(folder) for name, folder in named_policies().items()}
    if as_json:
        say(json.dumps({"models": folders, "downloads": sorted(DOWNLOADS.keys() - folders.keys())}))
        return
    for name, folder in folders.items():
        say(f"{name:<20} {folder}")
    for name in sorted(DOWNLOADS.keys() - folders.keys()):
        say(f"{name:<20} {DOWNLOADS[name].summary} [quartet model get {name}]")
