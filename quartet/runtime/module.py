"""One module in one process: `python -m quartet.runtime.module MODULE RUN_DIR`.

A module is a plain process. It reads the run's `config.toml`, and communicates with other modules through the ledger,
files that the ledger names, and HTTP; a byte in a named pipe tells it to read the ledger again. It stops on SIGTERM,
even if the ledger's server does not answer, and ends when its supervisor dies. It can also be started by hand or by
Kubernetes, and the trainer by `torchrun`.
"""

import asyncio
import importlib
import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from quartet.config import Recipe
from quartet.die_with import die_with
from quartet.errors import QuartetError
from quartet.fault import fault_of
from quartet.files.disk import disk_error
from quartet.ledger.database.answer_timeout import ANSWER_TIMEOUT
from quartet.native.memory_allocator import use_huge_pages
from quartet.recipe.file import read_with_plugins
from quartet.telemetry.log import log_to_file
from quartet.terminal.printable import printable

ENTRIES = {
    "env": "quartet.env.host:run_env_host",
    "engine": "quartet.engine.server:run_engine",
    "worker": "quartet.rollout.worker:run_worker",
    "manager": "quartet.manager.manager:run_manager",
    "trainer": "quartet.train.trainer:run_trainer",
    "sink": "quartet.report.sink_process:run_sink",
}
"""Entry points `async def run(recipe, run_dir, stop: asyncio.Event) -> None`. If a role has several processes, the
entry point also receives the process's name as `module`, for example `engine-2`."""
FAULT = 70
"""Exit code of a module whose code raised an exception other than a `QuartetError`."""


def run_module(module: str, run_dir: Path) -> int:
    """Run one module until it is asked to stop; return the exit code.

    A `QuartetError` is logged with its advice, any other exception with its traceback.
    """
    use_huge_pages()
    rank = os.environ.get("RANK", "0")
    try:
        log_to_file(run_dir, module if rank == "0" else f"{module}.rank-{rank}")
        recipe = read_with_plugins(run_dir / "config.toml")
        asyncio.run(_run(module, recipe, run_dir))
    except Exception as error:
        if known := explained(error):
            return _report(module, known)
        fault = fault_of(error)
        logging.getLogger(module).exception("%s", fault.summary)
        _say_last(f"{fault.traceback}{fault.summary}")
        return FAULT
    return 0


def explained(error: BaseException) -> QuartetError | None:
    """Return the error to show the user: `error` itself, a disk error, or the first such error of a group.

    Return None for any other exception, which is a bug.
    """
    if isinstance(error, QuartetError):
        return error
    if isinstance(error, OSError):
        return disk_error(error)
    if isinstance(error, BaseExceptionGroup):
        return next((known for inner in error.exceptions if (known := explained(inner))), None)
    return None


def _report(module: str, error: QuartetError) -> int:
    logging.getLogger(module).error("%s", error)
    _say_last(printable(str(error)))
    return error.exit_code


def _say_last(text: str) -> None:
    """Print the module's last words, which the supervisor reads, to stderr if it can be written.

    It is a file of the run, so a full disk that ended the module refuses it too. The exit code must survive that.
    """
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201  (the supervisor reads them)
    except OSError:
        sys.stderr = None  # else the exit flushes it again, fails, and replaces the exit code by 120


async def _run(module: str, recipe: Recipe, run_dir: Path) -> None:
    stop = asyncio.Event()
    _stop_at_signals(asyncio.get_running_loop(), stop)
    ANSWER_TIMEOUT.seconds = recipe.runtime.ledger_timeout_seconds
    role, _, number = module.partition("-")
    module_name, _, function = ENTRIES[role].partition(":")
    entry = getattr(importlib.import_module(module_name), function)
    await entry(recipe, run_dir, stop, **({"module": module} if number else {}))


def _stop_at_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Set `stop` on SIGTERM and SIGINT.

    Handlers of `loop.add_signal_handler` would run only between steps of the loop, and a step may be waiting for the
    ledger's server.
    """

    def on_signal(number: int, frame: FrameType | None) -> None:
        ANSWER_TIMEOUT.stop()
        if not loop.is_closed():  # else the module is exiting
            loop.call_soon_threadsafe(stop.set)

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, on_signal)


if __name__ == "__main__":
    if len(sys.argv) > 3:  # a module started by hand has no supervisor to follow
        die_with(int(sys.argv[3]))
    sys.exit(run_module(sys.argv[1], Path(sys.argv[2])))
