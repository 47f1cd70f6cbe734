"""`quartet status`: show what a run does and what it waits for."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from quartet.cli.parameters import JSON, RUN
from quartet.terminal.say import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from quartet.report.snapshot import Snapshot, SnapshotReader

WATCH_SECONDS = 1.0


@click.command(name="status")
@RUN
@click.option("--watch", is_flag=True, help="Refresh until the run ends, or Ctrl-C; into a pipe one line each.")
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
    if as_json:  # outside of `Live`, which would wrap lines at the width of the terminal
        for snapshot in _snapshots(reader):
            say(json.dumps(snapshot.to_dict()))
        return
    from rich.live import Live

    from quartet.terminal.console import PrintableConsole

    console = PrintableConsole()
    if not console.is_terminal:
        _print_lines(reader, console)
        return
    with Live(console=console, auto_refresh=False) as live:
        for snapshot in _snapshots(reader):
            live.update(snapshot.panel(), refresh=True)


def _print_lines(reader: "SnapshotReader", console: "Console") -> None:
    """Print a line per snapshot and per new alarm, as `quartet train` does into a pipe, and the panel of the end."""
    from quartet.report.alarms.announced import Announced
    from quartet.report.panel import plain_line

    announced = Announced()
    for snapshot in _snapshots(reader):
        if snapshot.running:
            for line in (*announced.lines(snapshot.alarms), plain_line(snapshot.status)):
                console.print(line, soft_wrap=True)
        else:
            console.print(snapshot.panel())


def _snapshots(reader: "SnapshotReader") -> "Iterator[Snapshot]":
    """Yield a snapshot every `WATCH_SECONDS`; the last one is the first at which the run has ended."""
    while True:
        snapshot = reader.read()
        yield snapshot
        if not snapshot.running:
            return
        time.sleep(WATCH_SECONDS)
