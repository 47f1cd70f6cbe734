"""`quartet ledger import`: put successes from a file into a run's success pool."""

import json
from contextlib import closing
from pathlib import Path

import click

from quartet.cli.parameters import JSON, RUN
from quartet.terminal.say import say


@click.command(name="import", short_help="Put successes from a file into a run's success pool.")
@RUN
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@JSON
def import_(run: Path, file: Path, as_json: bool) -> None:
    """Put the successes in FILE (chats that name their task, or an export) into the success pool of RUN.

    `replay.demonstrations` imports such a file when a run starts. Use this command for a run that has already started.
    RUN may be live.
    """
    from msgspec import to_builtins

    from quartet.exchange.demonstrations import store_into
    from quartet.ledger import Ledger
    from quartet.recipe.file import read_with_plugins

    with closing(Ledger.open(run)) as ledger:
        summary = store_into(ledger, read_with_plugins(run / "config.toml"), file)
    left_out = "".join(f", {count} left out ({reason})" for reason, count in summary.left_out.items())
    say(
        json.dumps(to_builtins(summary))
        if as_json
        else f"{summary.stored} demonstrations stored, {summary.known} already present{left_out}"
    )
