"""Supervisor of a run's module processes, independent of training.

It starts modules, restarts dead ones up to a limit, kills modules without heartbeats (`silence.py`), and stops all
modules when it ends. A callback runs a few times per second for displays and end conditions.
"""

import logging
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TypeVar

from msgspec import to_builtins

from quartet.config import Recipe
from quartet.errors import (
    ConfigError,
    LedgerUnreachableError,
    QuartetError,
    SetupError,
    UntrainableError,
    UnusablePolicyError,
)
from quartet.fault import same_error
from quartet.files.disk import raise_if_low
from quartet.ledger import Ledger
from quartet.ledger.database.answer_timeout import ANSWER_TIMEOUT
from quartet.report.alarms.modules import AGAINST_SILENCE
from quartet.report.show import times
from quartet.report.status import GIVEN_UP
from quartet.runtime.heartbeats import Heartbeats
from quartet.runtime.interruption import SIGNALS, interrupted_by
from quartet.runtime.module import FAULT
from quartet.runtime.placer.base import Placer
from quartet.runtime.placer.here import Here
from quartet.runtime.process import ModuleProcess
from quartet.runtime.silence import SilentKills

log = logging.getLogger(__name__)
T = TypeVar("T")

STOP_SECONDS = 8.0
"""Time for modules to stop cleanly before they are killed; Ctrl-C promises ten seconds in total."""
SINK = "sink-"
"""Name prefix of modules that only export the run's records; the run continues without them."""
SINK_STOP_SECONDS = 1.5
"""Minimum time for sinks, which stop last, to export the last records of the other modules."""
TICK_SECONDS = 0.2
MOST_IDENTICAL_FAULTS = 3
"""Number of consecutive deaths of a module by the same exception, each soon after its start, after which the run ends,
or goes on without the module if it is a sink."""
LONG_LIFE_SECONDS = 600.0
"""Lifetime of a module after which its death no longer counts as consecutive to earlier ones."""
_FINAL = {error.exit_code: error for error in (ConfigError, SetupError, UntrainableError, UnusablePolicyError)}
"""Errors after which a module is not restarted, since they would occur again, by exit code of the module."""


class ModuleDiedError(QuartetError):
    """A module died more often than the recipe allows."""


class Supervisor:
    """Context manager for the processes of one run; its exit stops all of them."""

    def __init__(self, recipe: Recipe, run_dir: Path, ledger: Ledger, placer: Placer | None = None) -> None:
        """Start modules by `placer`, by default as processes of this machine."""
        self._recipe, self._run_dir, self._ledger = recipe, run_dir, ledger
        self._heartbeats = Heartbeats(ledger)
        self._placer = placer or Here(recipe, run_dir)
        self._processes: dict[str, ModuleProcess] = {}
        self._untold: dict[str, int] = {}  # exit codes of dead modules that are not recorded in the ledger yet
        self._given_up: set[str] = set()
        self._faults: dict[str, list[str]] = {}  # consecutive occurrences of the same exception, by module
        self._silent_kills: dict[str, SilentKills] = {}
        self._killed: set[str] = set()  # modules killed because they were silent, until their restart
        self._interrupted: signal.Signals | None = None
        self._old_handlers: dict[int, signal.Handlers | Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> "Supervisor":
        self._ledger.set_value(GIVEN_UP, [])
        for name in SIGNALS:
            self._old_handlers[name] = signal.signal(name, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(*self._processes)
        for name, handler in self._old_handlers.items():
            signal.signal(name, handler)
        ANSWER_TIMEOUT.resume()

    def start(self, *modules: str) -> None:
        """Start the named modules, except those that are running or were given up."""
        for module in modules:
            if module not in self._processes and module not in self._given_up:
                process = ModuleProcess(
                    module,
                    self._run_dir,
                    self._placer.start,
                    max_restarts=self._recipe.runtime.max_restarts_per_module,
                    max_delay_seconds=self._recipe.runtime.max_restart_delay_seconds,
                )
                self._processes[module] = process
                process.start()
                self._note_start(process)

    def stop(self, *modules: str) -> None:
        """Stop modules, sinks last: terminate all, wait for them until a deadline, then kill the remaining ones."""
        leaving = [self._processes.pop(module) for module in list(modules) if module in self._processes]
        sinks = [process for process in leaving if process.module.startswith(SINK)]
        deadline = time.monotonic() + STOP_SECONDS
        _stop([process for process in leaving if process not in sinks], deadline)
        _stop(sinks, max(deadline, time.monotonic() + SINK_STOP_SECONDS))

    def finish(self, *modules: str, on_tick: Callable[[], None] = lambda: None) -> None:
        """Ask modules to stop, and return once they have stopped. They may finish their work as long as they send
        heartbeats.

        Failures of their last work are recorded as deaths. Raises the errors of `run_until`.
        """
        leaving = [self._processes[module] for module in modules if module in self._processes]
        for process in leaving:
            process.terminate()
        self.run_until(lambda: None if any(process.is_alive for process in leaving) else "stopped", on_tick)
        asked = (None, 0, -signal.SIGTERM)  # SIGTERM ends a module that is still starting
        failed = {process: code for process in leaving if (code := process.exit_code) not in asked}
        self.stop(*modules)
        for process, code in failed.items():
            log.error("module %s failed while it stopped, code %s: %s", process.module, code, process.last_words())
            self._untold[process.module] = code
            self.outlast(partial(self._tell_death, process, code))

    def are_up(self, *modules: str) -> bool:
        """Return whether the process of each module has reported that its start-up is complete."""
        self._heartbeats.poll()
        processes = self._processes
        return all(module in processes and self._heartbeats.is_up(module, processes[module].pid) for module in modules)

    def run_until(self, condition: Callable[[], str | None], on_tick: Callable[[], None] = lambda: None) -> str:
        """Supervise the modules until `condition` returns a reason, and return it.

        Raises `InterruptedByUser`, the error of a module that ends the run, or `LedgerUnreachableError` if the ledger's
        server remains unreachable.
        """
        while not (reason := self.outlast(lambda: self._tick(condition, on_tick))):
            time.sleep(TICK_SECONDS)
        return reason

    def outlast(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, which must be idempotent: it is retried while the ledger is unreachable.

        Raises `LedgerUnreachableError` after `runtime.ledger_timeout_seconds`, `InterruptedByUser` after a signal.
        """
        begun_at, reported = time.monotonic(), ""
        while True:
            if self._interrupted:
                raise interrupted_by(self._interrupted)
            try:
                return call()
            except LedgerUnreachableError as error:
                if not self._interrupted and time.monotonic() - begun_at > ANSWER_TIMEOUT.seconds:
                    raise
                if error.what != reported:
                    ANSWER_TIMEOUT.report(f"waiting for the database: {error.what}")
                reported = error.what
            time.sleep(TICK_SECONDS)

    def _tick(self, condition: Callable[[], str | None], on_tick: Callable[[], None]) -> str | None:
        """Check the end condition and all modules. The ledger is read first: if it is unreachable, nothing is
        restarted."""
        if reason := condition():
            return reason
        self._heartbeats.poll()
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
                f"module {process.module!r} died {times(process.restarts)}; last output: {process.last_words()}",
                f"{self._where_to_look(process.module)}, then continue with --resume",
            )
        if process.restart_if_due():
            self._note_start(process)
            log.warning("module %s restarted", process.module)
        elif process.is_alive and process.module not in self._killed:
            self._kill_if_silent(process)

    def _note_start(self, process: ModuleProcess) -> None:
        self._killed.discard(process.module)
        self._heartbeats.started(process.module, process.pid if self._placer.on_this_machine else None)

    def _kill_if_silent(self, process: ModuleProcess) -> None:
        module, runtime = process.module, self._recipe.runtime
        if self._heartbeats.silent_seconds(module) <= runtime.heartbeat_timeout_seconds:
            return
        silence = self._heartbeats.silence(module)
        if not silence.is_too_long(runtime):
            return
        kills = self._silent_kills.get(module, SilentKills()).and_one(self._train_steps())
        words = f"killed by the supervisor: {silence} (limit {runtime.heartbeat_timeout_seconds:g} s){kills.repeated}"
        self._ledger.event("module_silent", module=module, **to_builtins(silence))
        self._silent_kills[module] = kills
        self._killed.add(module)
        log.error("module %s %s; %s", module, words, AGAINST_SILENCE)
        process.kill(words)

    def _train_steps(self) -> int:
        """Return the number of train steps of all policies, which is the progress of the run."""
        return sum(ledger.batches.train_step() for ledger in self._ledger.each())

    def _where_to_look(self, module: str) -> str:
        logs = self._run_dir / "logs"
        if module in self._killed:
            return f"{AGAINST_SILENCE}; see {logs / 'supervisor.jsonl'}"
        return f"see {logs / f'{module}.stderr'}"

    def _tell_death(self, process: ModuleProcess, code: int) -> None:
        raise_if_low(self._run_dir, self._recipe.disk.min_free_megabytes)  # the likely cause; no last words name it
        words = process.last_words()
        cause = {"silent_kills": self._silent_kills[process.module].count} if process.module in self._killed else {}
        self._ledger.event("module_died", module=process.module, code=code, last_words=words, **cause)
        del self._untold[process.module]
        faults = self._count_fault(process, words if code == FAULT else "")
        if process.module.startswith(SINK):
            if code in _FINAL or process.exhausted or faults >= MOST_IDENTICAL_FAULTS:
                self._give_up(process, words)
        elif error := _FINAL.get(code):
            raise error(f"module {process.module!r} cannot run: {words}", "then continue with --resume")
        elif faults >= MOST_IDENTICAL_FAULTS:
            raise ModuleDiedError(
                f"module {process.module!r} died {times(faults)} of the same exception\n{process.last_traceback()}",
                f"fix it and continue with --resume; see {self._run_dir / 'logs' / (process.module + '.stderr')}",
            )

    def _count_fault(self, process: ModuleProcess, fault: str) -> int:
        """Return the number of consecutive deaths by the same exception, this one included.

        `fault` describes the exception; it is empty for any other death, for which the number is 0.
        """
        former = self._faults.get(process.module, [])
        goes_on = former and process.lived_seconds < LONG_LIFE_SECONDS and same_error(former[0], fault)
        same = [*former, fault] if goes_on else [fault]
        self._faults[process.module] = same if fault else []
        return len(self._faults[process.module])

    def _give_up(self, process: ModuleProcess, words: str) -> None:
        del self._processes[process.module]
        self._given_up.add(process.module)
        self._ledger.set_value(GIVEN_UP, sorted(self._given_up))
        self._ledger.event("sink_given_up", module=process.module, last_words=words)
        log.error("module %s given up, the run continues without it: %s", process.module, words)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._interrupted = signal.Signals(number)
        ANSWER_TIMEOUT.stop()


def _stop(processes: list[ModuleProcess], deadline: float) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(deadline)
