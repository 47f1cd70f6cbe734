"""A training run whose processes are killed on purpose: start it, kill processes, resume it, end it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from benchmarks.crashes.processes import everybody, module_processes
from benchmarks.postgresql_server import crash_server, end_connections, frozen_server
from quartet.config import Recipe
from quartet.crash_points import VARIABLE
from quartet.die_with import child_command
from quartet.errors import LedgerUnreachableError
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml

POLL_SECONDS = 0.05
TIMEOUT_SECONDS = 240.0
"""Longest wait for an event of the run, if no more processes want to compute than there are processors."""


def patience() -> float:
    """Return the longest wait for an event in seconds: a run that shares its processors with others gets a part."""
    return TIMEOUT_SECONDS * max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0)


class StuckError(AssertionError):
    """The run ended, or makes no progress, although it was not asked to stop."""


class CrashRun:
    """Context manager for one run in `folder`; its exit ends all processes."""

    prefix: Sequence[str] = ()
    """Words that run a command where the supervisor runs."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder, self.run_dir = folder, folder / "run"
        self.kills = 0
        self._recipe_path, self._points = folder / "recipe.toml", folder / "points"
        self._points.mkdir(parents=True)
        self._environment = os.environ | {VARIABLE: str(self._points)}
        self._recipe_path.write_text(to_toml(recipe))
        self._ledger_url, self.module_names = recipe.ledger.url, recipe.modules
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._stopped: list[psutil.Process] = []
        self._ledger: Ledger | None = None

    @property
    def on_server(self) -> bool:
        """True if the ledger is on a database server, which can be killed too."""
        return bool(self._ledger_url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill(everybody(self.run_dir))
        if self._ledger:
            self._ledger.close()

    # ------------------------------------------------------------------------------------------------ start and end

    def start(self, *arguments: str) -> None:
        """Start `quartet train`, which resumes the run if it exists. Return at once."""
        resume = ["--resume"] if (self.run_dir / "config.toml").exists() else []
        command = child_command("quartet", "train", str(self._recipe_path), "--run-dir", str(self.run_dir))
        with (self.folder / "supervisor.stderr").open("ab") as errors:
            self._supervisor = subprocess.Popen(
                [*self.prefix, *command, "--json", *resume, *arguments],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=self._environment,
            )

    def alive(self) -> bool:
        """Return whether the supervisor is alive. Raises `StuckError` if it ended by itself with an error."""
        code = self._supervisor.poll() if self._supervisor else -1
        if code == LedgerUnreachableError.exit_code:
            return False  # the ledger did not answer; between two phases the run does not wait for the server
        if code is not None and code >= 0:
            raise StuckError(f"the run ended with exit code {code}: {self._last_words()}")
        return code is None

    def keep_alive(self) -> None:
        """Resume the run if its supervisor was killed."""
        if not self.alive():
            self.start()

    def finish(self, more_train_steps: int = 2) -> None:
        """Let the run end by itself after some more train steps; resume it after every kill."""
        self.kill_everybody(counts=False)
        last = self.train_step() + more_train_steps
        began = time.monotonic()
        while time.monotonic() < began + patience():
            self.start("--set", f"train.max_train_steps={last}")
            assert self._supervisor is not None
            code = self._supervisor.wait(patience())
            if code == 0:
                return
            if code > 0 and code != LedgerUnreachableError.exit_code:
                raise StuckError(f"the run ended with exit code {code}: {self._last_words()}")
        raise StuckError("the run did not end")

    # ---------------------------------------------------------------------------------------------------- see and wait

    def modules(self) -> dict[str, psutil.Process]:
        """Return the live module processes of the current supervisor, by name."""
        return module_processes(self._supervisor.pid) if self._supervisor else {}

    def train_step(self) -> int:
        """Return the last train step that every policy has committed; 0 if a policy has only its initial version."""
        if self._ledger is None and not (self.run_dir / "policies").is_dir():
            return 0
        try:
            return self.ledger.batches.least_train_step()
        except LedgerUnreachableError:  # the server was killed; the next call opens a new connection
            return self.ledger.batches.least_train_step()

    @property
    def ledger(self) -> Ledger:
        """The run's ledger, which exists once the run has a folder of policies."""
        if self._ledger is None:
            self._ledger = self._open_ledger()
        return self._ledger

    def _open_ledger(self) -> Ledger:
        return Ledger.open(self.run_dir)

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Wait for a condition; resume the run if its supervisor was killed. Raises `StuckError` after `patience`."""
        began = time.monotonic()
        while not condition():
            self.keep_alive()
            if (waited := time.monotonic() - began) > patience():
                raise StuckError(f"waited {waited:.0f} s for {what or condition}: {self._last_words()}")
            time.sleep(POLL_SECONDS)

    def until_trained(self, more_train_steps: int = 1) -> None:
        """Wait until this many further train steps are committed."""
        goal = self.train_step() + more_train_steps
        self.until(lambda: self.train_step() >= goal, what=f"train step {goal}")

    # -------------------------------------------------------------------------------------------------------------- hit

    def arm(self, point: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Arm a crash point: the first process that reaches it receives the signal `number`."""
        fresh = self._points / f".{point}"
        fresh.write_text(number.name)
        fresh.rename(self._points / point)

    def armed(self, point: str) -> bool:
        return (self._points / point).exists()

    def disarm(self, point: str) -> bool:
        """Disarm a crash point; return False if it was already hit."""
        try:
            (self._points / point).unlink()
        except FileNotFoundError:
            return False
        return True

    def hit(self, point: str, seconds: float) -> bool:
        """Arm a crash point and wait until it kills a process. Disarm it and return False if no process reaches it in
        time."""
        self.arm(point)
        deadline = time.monotonic() + seconds
        while self.armed(point) and time.monotonic() < deadline:
            self.keep_alive()
            time.sleep(POLL_SECONDS)
        if self.disarm(point):
            return False
        self.kills += 1
        return True

    def kill(self, name: str) -> bool:
        """Kill a module, or all modules of a role (`engine`, `trainer`). Return False if none is alive."""
        victims = list(self._named(name).values())
        self._kill(victims)
        self.kills += len(victims)
        return bool(victims)

    def kill_supervisor(self) -> None:
        """Kill the supervisor only. The kernel signals its modules, which may still work when the run is resumed."""
        if self._supervisor and self._supervisor.poll() is None:
            self._supervisor.kill()
            self._supervisor.wait()
            self.kills += 1

    def kill_everybody(self, *, counts: bool = True) -> None:
        """Kill all processes of the run at once; this counts as one kill."""
        self._kill(everybody(self.run_dir))
        self.kills += counts

    def end_connections(self, module: str) -> bool:
        """Let the server end every connection of a module; return False if the module has none."""
        victim = self.modules().get(module)
        if victim is None or not end_connections(self._ledger_url, victim.pid):
            return False
        self.kills += 1
        return True

    def crash_server(self) -> None:
        """Kill the database server and start it again: all processes lose their connections."""
        crash_server(self._ledger_url)
        self.kills += 1

    def freeze_server(self, seconds: float) -> None:
        """Stop all processes of the database server for some seconds."""
        with frozen_server(self._ledger_url):
            time.sleep(seconds)
        self.kills += 1

    def outwait_patience(self) -> None:
        """Freeze the database server until the run ends by itself, after `runtime.ledger_timeout_seconds`.

        The run must end with the exit code of `LedgerUnreachableError`, and leave no process.
        """
        with frozen_server(self._ledger_url):
            assert self._supervisor is not None
            code = self._supervisor.wait(patience())
            if code != LedgerUnreachableError.exit_code or everybody(self.run_dir):
                raise StuckError(f"code {code}, left {everybody(self.run_dir)}: {self._last_words()}")
        self.kills += 1

    def terminate(self) -> int:
        """Send SIGTERM to the supervisor, and return its exit code."""
        assert self._supervisor is not None
        self._supervisor.terminate()
        return self.exit_code()

    def exit_code(self) -> int:
        """Wait for the end of a supervisor that was asked to stop, and return its exit code."""
        assert self._supervisor is not None
        return self._supervisor.wait(patience())

    def stop_at(self, point: str, role: str) -> psutil.Process:
        """Let a module of a role stop itself (SIGSTOP) at a crash point, and return its process."""
        self.arm(point, signal.SIGSTOP)
        self.until(lambda: not self.armed(point), what=f"{role} at {point}")
        self.until(lambda: self._stopped_ones(role), what=f"{role} to stop")
        self._stopped += self._stopped_ones(role)[:1]
        return self._stopped[-1]

    def go_on(self, process: psutil.Process) -> None:
        process.resume()
        self._stopped.remove(process)

    def beside(self, module: str) -> int:
        """Run another process of a module on the run until it ends, and return its exit code."""
        arguments = [sys.executable, "-m", module, str(self.run_dir)]
        return subprocess.run(arguments, env=self._environment, cwd=Path(__file__).parents[2], check=False).returncode

    # ---------------------------------------------------------------------------------------------------------- private

    def _named(self, name: str) -> dict[str, psutil.Process]:
        """Return the live modules of this name or role."""
        return {module: one for module, one in self.modules().items() if name in (module, module.partition("-")[0])}

    def _stopped_ones(self, role: str) -> list[psutil.Process]:
        return [one for one in self._named(role).values() if one.status() == psutil.STATUS_STOPPED]

    def _kill(self, victims: list[psutil.Process]) -> None:
        for victim in victims:
            try:
                victim.kill()
            except psutil.NoSuchProcess:
                continue
        if self._supervisor and self._supervisor.pid in [victim.pid for victim in victims]:
            self._supervisor.wait()  # before psutil waits for it, which would make the exit code unavailable here
        psutil.wait_procs(victims, timeout=10)

    def _last_words(self) -> str:
        return (self.folder / "supervisor.stderr").read_text()[-2000:]
