"""A module that joins an active run: one more engine, environment host or worker, on this machine or another."""

import os
import signal
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Literal

from quartet.access.token import FILE
from quartet.errors import SetupError
from quartet.ledger import Ledger
from quartet.recipe.file import CONFIG, read_with_plugins
from quartet.runtime.check.recipe import check_hosts
from quartet.runtime.module import run_module
from quartet.terminal.say import say
from quartet.types.phase import ENDED, FINISHED, STARTING

Role = Literal["engine", "env", "worker"]
POLL_SECONDS = 1.0


def join_run(run_dir: Path, role: Role) -> int:
    """Run a module of an active run until it gets SIGTERM or SIGINT, or the run ends. Return its exit code.

    Raises `SetupError` if the run is not active, or `ConfigError` if its environment has one host only.
    """
    inactive = SetupError(f"{run_dir} is not active", "start it with `quartet train`, or continue it with --resume")
    token = _token(run_dir)
    if not token:
        raise inactive
    recipe = read_with_plugins(run_dir / CONFIG)
    if role == "env":
        check_hosts(recipe, recipe.env.hosts + 1)
    with closing(Ledger.open(run_dir)) as ledger:
        if ledger.value("phase", STARTING) in (ENDED, FINISHED):  # a starting module made the token again
            raise inactive
        module = ledger.modules.join(role, getattr(recipe, f"{role}_modules"))
        say(f"{module} joins {run_dir}; Ctrl-C ends it", err=True)
        _end_with_the_run(run_dir, token)
        ledger.close()  # the module has a ledger of its own; `leave` connects again
        try:
            return run_module(module, run_dir)
        finally:
            ledger.modules.leave(module)


def _end_with_the_run(run_dir: Path, token: str) -> None:
    """Send this process SIGTERM when the run has ended: its token is deleted then, and a resume makes a new one."""

    def watch() -> None:
        while _token(run_dir) == token:
            time.sleep(POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="watches the run", daemon=True).start()


def _token(run_dir: Path) -> str:
    """Return the token of an active run; empty if the run is not active."""
    try:
        return (run_dir / FILE).read_text()
    except FileNotFoundError:
        return ""
