"""`quartet sink`: send a run's records to a sink, also after the run has ended."""

import json
import time
from contextlib import closing
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, cast

import click

from quartet.cli.parameters import JSON, RUN
from quartet.errors import ConfigError
from quartet.terminal.say import say

if TYPE_CHECKING:
    from quartet.report.sink_process import FollowedRun
    from quartet.report.sinks.base import Sink

POLL_SECONDS = 2.0


@click.command(name="sink")
@RUN
@click.argument("name")
@click.option("--follow", is_flag=True, help="Follow the run until Ctrl-C.")
@JSON
def command(run: Path, name: str, follow: bool, as_json: bool) -> None:
    """Send the sink NAME all records of RUN that it has not received yet.

    A run whose recipe has NAME in `observe.sinks` sends its records itself. A sink that serves records only while it
    runs (prometheus) needs --follow. `quartet parts sink` lists all sinks.
    """
    from quartet.recipe.file import read_with_plugins
    from quartet.registry import build, find
    from quartet.report.sink_process import chosen_sink, following
    from quartet.report.sinks.base import Sink

    recipe = read_with_plugins(run / "config.toml")
    if cast(type[Sink], find("sink", name)).serves and not follow:
        raise ConfigError(
            f"the sink {name!r} serves records only while it runs: without --follow it would end at once",
            f"run `quartet sink {quote(str(run))} {name} --follow`",
        )
    with following(run, name) as followed, closing(build(chosen_sink(recipe, name), recipe, run)) as sink:
        shown = _show(followed, sink, follow=follow)
    say(json.dumps({"sink": name, "shown": shown}) if as_json else f"{shown} records and spans to {name}")


def _show(followed: "FollowedRun", sink: "Sink", *, follow: bool) -> int:
    """Send new records, once or until Ctrl-C; return the number of records and spans."""
    shown = 0
    try:
        shown += followed.show(sink)
        while follow:
            time.sleep(POLL_SECONDS)
            shown += followed.show(sink)
    except KeyboardInterrupt:
        say("stopped", err=True)
    return shown
