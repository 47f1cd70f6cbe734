"""`quartet stop`: end a run cleanly."""

import json
import os
import signal
import time
from pathlib import Path

import click

from quartet.cli.parameters import JSON, RUN
from quartet.errors import SetupError
from quartet.terminal.say import say

TIMEOUT_SECONDS = 20.0
"""Maximum time to wait for the supervisor's end."""


@click.command(name="stop")
@RUN
@JSON
def command(run: Path, as_json: bool) -> None:
    """Stop the supervisor of RUN, which ends its modules and browsers. Continue with `quartet train … --resume`."""
    from quartet.run.run_dir import supervisor

    running = supervisor(run)
    if running is not None:
        if not running.is_here:
            raise SetupError(
                f"{run} is supervised by process {running}, which cannot be stopped from here",
                f"run `quartet stop` where that process runs, on {running.host}",
            )
        _terminate(running.pid)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while supervisor(run) is not None:
            if time.monotonic() > deadline:
                raise SetupError(
                    f"process {running.pid} did not stop within {TIMEOUT_SECONDS:.0f} s",
                    f"end it with `kill -9 {running.pid}`",
                )
            time.sleep(0.1)
    if as_json:
        say(json.dumps({"run": str(run), "was_running": running is not None}))
    else:
        say(f"stopped {run}" if running is not None else f"{run} was not running")


def _terminate(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:  # it has ended since
        return
    except PermissionError as error:
        raise SetupError(
            f"process {pid}, the run's supervisor, belongs to another user", "stop the run as that user"
        ) from error
