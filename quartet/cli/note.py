"""`quartet note`: write a note and tags on a run, for the list of runs."""

import json
from pathlib import Path

import click
import msgspec

from quartet.cli.parameters import JSON, RUN
from quartet.errors import ConfigError
from quartet.run.notes import Notes, read_notes, write_notes
from quartet.terminal.say import say


@click.command(name="note")
@RUN
@click.argument("text", required=False)
@click.option("--tag", "added", multiple=True, metavar="TAG", help="Add a tag; may be repeated.")
@click.option("--untag", "removed", multiple=True, metavar="TAG", help="Remove a tag; may be repeated.")
@JSON
def command(run: Path, text: str | None, added: tuple[str, ...], removed: tuple[str, ...], as_json: bool) -> None:
    """Write TEXT as the note of RUN, in its notes.json. Without TEXT and tags, print the present note and tags."""
    from quartet.run.run_files import is_run

    if not is_run(run):
        raise ConfigError(f"{run} is not a run", "give the folder of a run that `quartet train` made")
    before = read_notes(run)
    kept = [tag for tag in (*before.tags, *added) if tag not in removed]
    notes = Notes(note=before.note if text is None else text, tags=tuple(dict.fromkeys(kept)))
    if notes != before:
        write_notes(run, notes)
    if as_json:
        say(json.dumps(msgspec.to_builtins(notes)))
        return
    say(notes.note or "no note")
    if notes.tags:
        say(f"tags: {', '.join(notes.tags)}")
