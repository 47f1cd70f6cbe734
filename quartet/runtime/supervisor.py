"""The supervisor: starts module processes and keeps them alive.

It knows nothing of learning. It starts modules, restarts what dies (bounded), kills what has gone silent, ends
everything when it ends, and runs a callback a few times a second for whoever shows or decides something.
"""

import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import TypeVar

from quartet.config import Recipe
from quartet.errors import (
    ConfigError,
    InterruptedByUser,
    LedgerUnreachableError,
    QuartetError,
    SetupError,
    UntrainableError,
    UnusablePolicyError,
)
from quartet.fault import same_error
from quartet.ledger import Ledger
from quartet.ledger.database.patience import PATIENCE
from quartet.report.show import times
from quartet.report.status import GIVEN_UP
from quartet.runtime.heartbeats import Heartbeats
from quartet.runtime.module import FAULT
from quartet.runtime.process import ModuleProcess

log = logging.getLogger(__name__)
T = TypeVar("T")

STOP_SECONDS = 8.0
"""Modules get this long to stop cleanly before they are killed: Ctrl-C promises ten seconds in all."""
SINK = "sink-"
"""Modules of these names only show the run: it goes on without them."""
SINK_STOP_SECONDS = 1.5
"""Sinks stop last, and get at least this long to show what the others did last."""
TICK_SECONDS = 0.2
MOST_IDENTICAL_FAULTS = 3
"""A module that ended so often in a row with the same exception, soon after its start, is not started again."""
LONG_LIFE_SECONDS = 600.0
"""A module that lived so long was of use: its end begins a new row."""
_FINAL = {error.exit_code: error for error in (ConfigError, SetupError, UntrainableError, UnusablePolicyError)}
"""What a module says by its exit code that another start would only say again."""


class ModuleDiedError(QuartetError):
    """A module died more often than the recipe allows."""


class Supervisor:
    """Context manager around the processes of one run; leaving it ends them all."""

    def __init__(self, recipe: Recipe, run_dir: Path, ledger: Ledger) -> None:
        self._recipe, self._run_dir, self._ledger = recipe, run_dir, ledger
        self._heartbeats = Heartbeats(ledger)
        self._processes: dict[str, ModuleProcess] = {}
        self._untold: dict[str, int] = {}  # exit codes of modules that died, until the ledger has them
        self._given_up: set[str] = set()
        self._faults: dict[str, list[str]] = {}  # by module: the same exception, as often as it came in a row
        self._interrupted = False
        self._old_handlers: dict[int, signal.Handlers | Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> "Supervisor":
        self._ledger.set_value(GIVEN_UP, [])
        for name in (signal.SIGINT, signal.SIGTERM):
            self._old_handlers[name] = signal.signal(name, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(*self._processes)
        for name, handler in self._old_handlers.items():
            signal.signal(name, handler)
        PATIENCE.resume()

    def start(self, *modules: str) -> None:
        """Start modules that do not run yet, and that were not given up."""
        for module in modules:
            if module not in self._processes and module not in self._given_up:
                threads = {"engine": self._recipe.engine.threads, "trainer": self._recipe.train.threads}.get(
                    module.partition("-")[0], 1
                )
                process = ModuleProcess(
                    module,
                    self._run_dir,
                    max_restarts=self._recipe.runtime.max_restarts_per_module,
                    max_delay_seconds=self._recipe.runtime.max_restart_delay_seconds,
                    threads=threads,
                    start_method=self._recipe.runtime.start_method,
                )
                self._processes[module] = process
                self._heartbeats.started(module)
                process.start()

    def stop(self, *modules: str) -> None:
        """Stop modules together, sinks last: all are asked, then waited for, then what is left is killed."""
        leaving = [self._processes.pop(module) for module in list(modules) if module in self._processes]
        sinks = [process for process in leaving if process.module.startswith(SINK)]
        deadline = time.monotonic() + STOP_SECONDS
        _stop([process for process in leaving if process not in sinks], deadline)
        _stop(sinks, max(deadline, time.monotonic() + SINK_STOP_SECONDS))

    def are_up(self, *modules: str) -> bool:
        """Whether the process of each of them has reported that it is past its start."""
        self._heartbeats.look()
        processes = self._processes
        return all(module in processes and self._heartbeats.is_up(module, processes[module].pid) for module in modules)

    def run_until(self, condition: Callable[[], str | None], on_tick: Callable[[], None] = lambda: None) -> str:
        """Watch over the modules until `condition` returns a reason. Raises when the user or a module ends the run, and
        `LedgerUnreachableError` when the ledger's server stays away."""
        while not (reason := self.outlast(lambda: self._tick(condition, on_tick))):
            time.sleep(TICK_SECONDS)
        return reason

    def outlast(self, call: Callable[[], T]) -> T:
        """Result of `call`, made again while the ledger's server is away; so it must be harmless to make it twice.

        Raises `LedgerUnreachableError` after `runtime.ledger_patience_seconds`, `InterruptedByUser` after a signal.
        """
        begun_at, reported = time.monotonic(), ""
        while True:
            if self._interrupted:
                raise InterruptedByUser("stopped by the user", "go on with --resume")
            try:
                return call()
            except LedgerUnreachableError as error:
                if not self._interrupted and time.monotonic() - begun_at > PATIENCE.seconds:
                    raise
                if error.what != reported:
                    PATIENCE.report(f"waits for the database: {error.what}")
                reported = error.what
            time.sleep(TICK_SECONDS)

    def _tick(self, condition: Callable[[], str | None], on_tick: Callable[[], None]) -> str | None:
        """One look at everything. The ledger is asked first: while it is away, nothing is started again."""
        if reason := condition():
            return reason
        self._heartbeats.look()
        for process in list(self._processes.values()):
            self._watch(process)
        on_tick()
        return None

    def _watch(self, process: ModuleProcess) -> None:
        code = process.poll()
        if code is not None:
            log.warning("module %s died with code %s: %s", process.module, code, process.last_words())
            self._untold[process.module] = code
        if process.module in self._untold:
            self._tell_death(process, self._untold[process.module])
        if process.module not in self._processes:  # given up
            return
        if process.exhausted:
            raise ModuleDiedError(
                f"module {process.module!r} died {times(process.restarts)}; last words: {process.last_words()}",
                f"see {self._run_dir / 'logs' / (process.module + '.stderr')}, then go on with --resume",
            )
        if process.restart_if_due():
            self._heartbeats.started(process.module)
            log.warning("module %s started again", process.module)
        elif process.pid is not None and self._is_silent(process.module):
            self._ledger.event("module_silent", module=process.module)
            log.error("module %s was silent for too long and is killed", process.module)
            process.kill()

    def _tell_death(self, process: ModuleProcess, code: int) -> None:
        words = process.last_words()
        self._ledger.event("module_died", module=process.module, code=code, last_words=words)
        del self._untold[process.module]
        if process.module.startswith(SINK) and (code in _FINAL or process.exhausted):
            self._give_up(process, words)
        elif error := _FINAL.get(code):
            raise error(f"module {process.module!r} cannot run: {words}", "then go on with --resume")
        self._raise_if_repeated(process, words if code == FAULT else "")

    def _raise_if_repeated(self, process: ModuleProcess, fault: str) -> None:
        """Raise `ModuleDiedError` for the last of `MOST_IDENTICAL_FAULTS`; `fault` is empty for any other death."""
        former = self._faults.get(process.module, [])
        goes_on = former and process.lived_seconds < LONG_LIFE_SECONDS and same_error(former[0], fault)
        same = [*former, fault] if goes_on else [fault]
        self._faults[process.module] = same if fault else []
        if fault and len(same) >= MOST_IDENTICAL_FAULTS:
            raise ModuleDiedError(
                f"module {process.module!r} died {times(len(same))} of the same exception\n{process.last_traceback()}",
                f"mend it and go on with --resume; see {self._run_dir / 'logs' / (process.module + '.stderr')}",
            )

    def _give_up(self, process: ModuleProcess, words: str) -> None:
        del self._processes[process.module]
        self._given_up.add(process.module)
        self._ledger.set_value(GIVEN_UP, sorted(self._given_up))
        self._ledger.event("sink_given_up", module=process.module, last_words=words)
        log.error("module %s is given up, the run goes on without it: %s", process.module, words)

    def _is_silent(self, module: str) -> bool:
        return self._heartbeats.silent_seconds(module) > self._recipe.runtime.heartbeat_timeout_seconds

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._interrupted = True
        PATIENCE.stop()


def _stop(processes: list[ModuleProcess], deadline: float) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(deadline)
