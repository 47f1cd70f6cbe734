"""Start the process of one module: forked from a warm server, or spawned as a Python of its own.

The fork server is that of `multiprocessing`. It imports PyTorch and Transformers once (about five processor seconds,
which each module would take); a fork takes milliseconds. It exists once per process, is started with the first
module, and ends with that process.
"""

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import connection
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Literal, Protocol

import setproctitle

from quartet.die_with import die_with

StartMethod = Literal["forkserver", "spawn"]
END_SECONDS = 5.0
"""Modules that were not stopped get this long at the end of the program, then SIGKILL."""
MODULE = "quartet.runtime.module"
"""Both ways put it into the command line that `ps` shows, with the module's name and the run's folder behind it."""


class Started(Protocol):
    """The part of `subprocess.Popen` that a supervisor needs."""

    @property
    def pid(self) -> int:
        """Process id."""
        ...

    def poll(self) -> int | None:
        """Return the exit code, the negative signal number of a killed process, or None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM."""
        ...


def can_fork() -> bool:
    """Whether a warm process may be forked here: only Linux's libraries are known to allow it."""
    return sys.platform == "linux"


def warm_up() -> None:
    """Start the fork server, so that it imports while this process prepares the run."""
    if can_fork():
        _CONTEXT.set_forkserver_preload(["quartet.runtime.preload"])
        ensure_running()


def start_process(method: StartMethod, module: str, run_dir: Path, log: Path, *, threads: int) -> Started:
    """Start a module in a session of its own, with its output appended to `log` and `threads` threads for PyTorch.

    It ends with this process, even by SIGKILL.
    """
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    start = _fork if method == "forkserver" and can_fork() else _spawn
    return start(module, run_dir, log, environment)


def _spawn(module: str, run_dir: Path, log: Path, environment: Mapping[str, str]) -> Started:
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", MODULE, module, str(run_dir), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )


class _Forked:
    """A child of the fork server, with the interface of `subprocess.Popen`."""

    def __init__(self, process: BaseProcess) -> None:
        assert process.pid is not None
        self._process, self.pid = process, process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()


def _fork(module: str, run_dir: Path, log: Path, environment: Mapping[str, str]) -> Started:
    warm_up()
    process = _CONTEXT.Process(target=_run_forked, args=(module, run_dir, log, environment), name=module)
    with _without_main():
        process.start()
    _modules[:] = [*(module for module in _modules if module.exitcode is None), process]
    return _Forked(process)


@atexit.register
def _end_modules() -> None:
    """End the modules that a program failed to stop: `multiprocessing` would wait for them at exit, for ever where one
    hangs. Processes that the program itself started are its own affair."""
    deadline = time.monotonic() + END_SECONDS
    for process in _modules:
        process.terminate()
    for process in _modules:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide `__main__`: `multiprocessing` would import it again in the child, so a script without the usual guard would
    train there once more."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _run_forked(module: str, run_dir: Path, log: Path, environment: Mapping[str, str]) -> None:
    """Become in the child what `_spawn` starts, then run the module."""
    os.setsid()
    setproctitle.setproctitle(f"{sys.executable} -m {MODULE} {module} {run_dir}")
    die_with(os.getppid())
    _end_with_the_supervisor()
    with log.open("ab") as output, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    import torch

    from quartet.runtime.module import run_module

    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    try:
        code = run_module(module, run_dir)
    finally:
        atexit._run_exitfuncs()  # a child of `multiprocessing` runs none of them
    sys.exit(code)


def _end_with_the_supervisor() -> None:
    """Send this process SIGTERM when the process that asked for it dies.

    The kernel's own signal (`die_with`) follows the fork server, which lives as long as any of its children.
    """
    supervisor = multiprocessing.parent_process()
    assert supervisor is not None

    def watch() -> None:
        connection.wait([supervisor.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="watches the supervisor", daemon=True).start()


_CONTEXT = multiprocessing.get_context("forkserver")
_modules: list[BaseProcess] = []
"""The forks of this process that were alive when the last one was started."""
