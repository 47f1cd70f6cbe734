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
    from quartet.run.run_dir import supervisor_pid

    pid = supervisor_pid(run)
    if pid is not None:
        _terminate(pid)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while supervisor_pid(run) is not None:
            if time.monotonic() > deadline:
                raise SetupError(
                    f"process {pid} did not stop within {TIMEOUT_SECONDS:.0f} s", f"end it with `kill -9 {pid}`"
                )
            time.sleep(0.1)
    if as_json:
        say(json.dumps({"run": str(run), "was_running": pid is not None}))
    else:
        say(f"stopped {run}" if pid is not None else f"{run} was not running")


def _terminate(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:  # it has ended since
        return
    except PermissionError as error:
        raise SetupError(
            f"process {pid}, the run's supervisor, belongs to another user", "stop the run as that user"
        ) from error
