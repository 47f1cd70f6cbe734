"""`quartet status`: show what a run does and what it waits for."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quartet.cli.parameters import JSON, RUN
from quartet.terminal.say import say

if TYPE_CHECKING:
    from quartet.report.snapshot import SnapshotReader

WATCH_SECONDS = 1.0


@click.command(name="status")
@RUN
@click.option("--watch", is_flag=True, help="Refresh until the run ends, or Ctrl-C; with --json one line each.")
@JSON
def command(run: Path, watch: bool, as_json: bool) -> None:
    """Show success, speed and queues of RUN, and what each module does or waits for. For a live run, show alarms with
    advice.

    Writes nothing, so RUN may be a copy or on a read-only disk.
    """
    from quartet.report.snapshot import SnapshotReader

    with SnapshotReader(run) as reader:
        if reader.note:
            say(reader.note, fg="yellow", err=True)
        if watch:
            _watch(reader, as_json)
            return
        snapshot = reader.read()
        if as_json:
            say(json.dumps(snapshot.to_dict()))
            return
        from quartet.terminal.console import PrintableConsole

        PrintableConsole().print(snapshot.panel())


def _watch(reader: "SnapshotReader", as_json: bool) -> None:
    """Refresh until the run ends or the user interrupts; neither is an error."""
    try:
        _follow(reader, as_json)
    except KeyboardInterrupt:
        return


def _follow(reader: "SnapshotReader", as_json: bool) -> None:
    from rich.live import Live

    from quartet.terminal.console import PrintableConsole

    with Live(console=PrintableConsole(), auto_refresh=False) as live:
        while True:
            snapshot = reader.read()
            if as_json:
                say(json.dumps(snapshot.to_dict()))
            else:
                live.update(snapshot.panel(), refresh=True)
            if not snapshot.running:
                return
            time.sleep(WATCH_SECONDS)
