"""Start the process of one module: forked from a warm fork server, or spawned as a new Python process.

A spawned module imports PyTorch and Transformers, which takes about five processor seconds. The fork server of
`multiprocessing` imports them once, and each fork takes milliseconds. There is one fork server per supervising process.
It is started with the first module and ends with the supervising process.
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
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import connection
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from multiprocessing.util import get_temp_dir
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Literal, Protocol

import setproctitle

from quartet.die_with import die_with
from quartet.errors import SetupError

StartMethod = Literal["forkserver", "spawn"]
END_SECONDS = 5.0
"""Time after which modules that still run at the program's exit are killed."""
MODULE = "quartet.runtime.module"
"""Name in the command line that `ps` shows for both start methods, followed by the module and the run's folder."""


class Started(Protocol):
    """The methods of `subprocess.Popen` that a supervisor needs."""

    @property
    def pid(self) -> int | None:
        """Process id on the machine of the process; None while a cluster starts it."""
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

    def kill(self) -> None:
        """Send SIGKILL to the process and its children."""
        ...


class StartedHere(Started, Protocol):
    """A process of this machine."""

    @property
    def pid(self) -> int:
        """Process id."""
        ...


def can_fork() -> bool:
    """Return whether forking a process with loaded libraries is safe; this is known only on Linux."""
    return sys.platform == "linux"


def warm_up() -> None:
    """Start the fork server, so that it imports the libraries while this process prepares the run."""
    if can_fork():
        os.environ["QUARTET_FORK_SERVER_FOLDER"] = get_temp_dir()  # of the server's socket; the server deletes it, too
        _CONTEXT.set_forkserver_preload(["quartet.runtime.preload"])
        ensure_running()


def start_process(
    method: StartMethod,
    module: str,
    run_dir: Path,
    log: Path,
    *,
    threads: int,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> StartedHere:
    """Start a module in an operating-system session of its own, with its output appended to `log` and `threads` threads
    for PyTorch.

    `variables` are added to the environment. The module ends when this process ends, even by SIGKILL. Raises
    `SetupError` if Quartet's own modules cannot be imported.
    """
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false", **variables}
    start = _fork if method == "forkserver" and can_fork() else _spawn
    return start(module, run_dir, log, environment)


def _spawn(module: str, run_dir: Path, log: Path, environment: Mapping[str, str]) -> StartedHere:
    with log.open("ab") as output:
        return _Spawned(
            [sys.executable, "-m", MODULE, module, str(run_dir), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )


def _kill_group(process: StartedHere) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.poll() is None:  # a fork that has not created its own group yet
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


class _Spawned(subprocess.Popen[bytes]):
    """A new Python process."""

    def kill(self) -> None:
        _kill_group(self)


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

    def kill(self) -> None:
        _kill_group(self)


def _fork(module: str, run_dir: Path, log: Path, environment: Mapping[str, str]) -> StartedHere:
    warm_up()
    _require_preload()
    process = _CONTEXT.Process(target=_run_forked, args=(module, run_dir, log, environment), name=module)
    with _without_main():
        process.start()
    _modules[:] = [*(module for module in _modules if module.exitcode is None), process]
    return _Forked(process)


@cache
def _require_preload() -> None:
    """Raise `SetupError` with the traceback if an import failed in the fork server."""
    answer, say = _CONTEXT.Pipe(duplex=False)
    asked = _CONTEXT.Process(target=_tell_fault, args=(say,))
    with _without_main():
        asked.start()
    say.close()
    try:
        fault = answer.recv()
    except EOFError:
        fault = "the fork server ended before it had imported them"
    asked.join()
    if fault:
        raise SetupError(
            f"a module of Quartet cannot be imported\n{fault.rstrip()}",
            "install or repair the package in the last line; `quartet doctor` checks the installed packages",
        )


def _tell_fault(say: connection.Connection) -> None:
    """Send `FAULT`: the traceback of a failed import in the fork server, from which this process was forked. The text
    is empty if no import failed."""
    from quartet.runtime.preload import FAULT

    say.send(FAULT)


@atexit.register
def _end_modules() -> None:
    """End modules that the program did not stop; otherwise `multiprocessing` would wait for them at exit.

    Other child processes of the program are not affected.
    """
    deadline = time.monotonic() + END_SECONDS
    for process in _modules:
        process.terminate()
    for process in _modules:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide `__main__`, which `multiprocessing` would import again in the child. A script without the guard
    `if __name__ == "__main__"` would start training there, too."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _run_forked(module: str, run_dir: Path, log: Path, environment: Mapping[str, str]) -> None:
    """Set up the child like a process started by `_spawn`, then run the module."""
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
        atexit._run_exitfuncs()  # children of `multiprocessing` do not run them
    sys.exit(code)


def _end_with_the_supervisor() -> None:
    """Send this process SIGTERM when the supervisor dies.

    The kernel's parent-death signal (`die_with`) is sent only when the fork server dies, and the fork server lives as
    long as any of its children.
    """
    supervisor = multiprocessing.parent_process()
    assert supervisor is not None

    def watch() -> None:
        connection.wait([supervisor.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="watches the supervisor", daemon=True).start()


_CONTEXT = multiprocessing.get_context("forkserver")
_modules: list[BaseProcess] = []
"""Forked modules that were alive when the newest one was started."""
