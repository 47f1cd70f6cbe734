"""`quartet view`: serve a web page that shows live or finished runs."""

from pathlib import Path

import click

from quartet.cli.parameters import RUNS_OR_FOLDERS
from quartet.terminal.say import say

WAIT_SECONDS = 0.2


@click.command(name="view")
@RUNS_OR_FOLDERS
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; others need a token.")
@click.option("--port", type=click.IntRange(0, 65535), default=7842, show_default=True, help="0 picks a free one.")
@click.option("--token", help="Token for access; generated if the host is not loopback.")
@click.option("--terminal", is_flag=True, help="Show charts, modules and tasks in the terminal instead.")
def command(runs: tuple[list[Path], ...], host: str, port: int, token: str | None, terminal: bool) -> None:
    """Show RUNS, or all runs in a folder, in a browser: learning curves, current activity, tasks, rollouts.

    Writes nothing into the runs.
    """
    run_dirs = list(dict.fromkeys(run for some in runs for run in some))
    _wait_for_ledgers(run_dirs)
    if terminal:
        _show_here(run_dirs)
        return
    import secrets
    from urllib.parse import urlencode

    from quartet.access.rules import is_loopback
    from quartet.errors import ConfigError
    from quartet.web.app import build_app
    from quartet.web.serve import listen, serve

    if token == "":
        raise ConfigError("--token is empty, which would allow access without one", "omit it to generate one")
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(32)
    app = build_app(run_dirs, token=token)
    listener = listen(host, port)
    say(f"http://{_shown(host)}:{listener.getsockname()[1]}/" + (f"?{urlencode({'token': token})}" if token else ""))
    say("stop with Ctrl-C", err=True)
    serve(app, listener)


def _wait_for_ledgers(runs: list[Path]) -> None:
    """Wait for the ledgers of runs that are starting, which takes seconds. Runs without a live supervisor are not
    waited for."""
    import time

    from quartet.report.snapshot import is_starting

    for run in filter(is_starting, runs):
        say(f"{run} is starting: waiting for its ledger", err=True)
        while is_starting(run):
            time.sleep(WAIT_SECONDS)


def _show_here(runs: list[Path]) -> None:
    """Show the runs in the terminal until they end or the user presses Ctrl-C, which is not an error."""
    from quartet.report.screen import show_runs
    from quartet.terminal.console import PrintableConsole

    try:
        show_runs(runs, PrintableConsole())
    except KeyboardInterrupt:
        return


def _shown(host: str) -> str:
    """Return the host as in a URL; for a server on all addresses, the machine's name."""
    import socket

    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
