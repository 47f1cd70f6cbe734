"""Process of a module, restarted with backoff when it dies, up to a limit. A trainer may have several processes
(ranks), each in its own process group."""

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from quartet.runtime.start_process import Started

TRACEBACK = "Traceback (most recent call last):"


class ModuleProcess:
    """Process of one module of a run, or its ranks as one: start, poll, restart and stop."""

    def __init__(
        self,
        module: str,
        run_dir: Path,
        start: Callable[[str, Path], Started],
        *,
        max_restarts: int,
        max_delay_seconds: float,
    ) -> None:
        """Start the module by `start`, the method of a placer, which receives the module and its log file."""
        self.module = module
        self.restarts = 0
        self.lived_seconds = 0.0
        """Lifetime of the process that died last."""
        self._started_at = 0.0
        self._log = run_dir / "logs" / f"{module}.stderr"
        self._start, self._max_restarts = start, max_restarts
        self._process: Started | None = None
        self._max_delay_seconds, self._restart_at = max_delay_seconds, 0.0
        self._stopping = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit code of a process that has ended and was not polled; None for any other."""
        return self._process.poll() if self._process else None

    @property
    def exhausted(self) -> bool:
        """True if the process is dead and has no restarts left."""
        return self._process is None and self.restarts > self._max_restarts

    def start(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._process = self._start(self.module, self._log)
        self._stopping, self._started_at = False, time.monotonic()

    def poll(self) -> int | None:
        """Return the exit code of a process that has died since the last call, and schedule its restart.

        Return None if the process is alive or stopping, or if its death was returned before.
        """
        if self._process is None or self._stopping:
            return None
        code = self._process.poll()
        if code is None:
            return None
        self._process.kill()
        self._process = None
        self.restarts += 1
        self.lived_seconds = time.monotonic() - self._started_at
        self._restart_at = time.monotonic() + self._delay_seconds()
        return code

    def _delay_seconds(self) -> float:
        """Return the delay of the next restart: none of the first, then 0.5 s, doubled with each restart."""
        return 0.0 if self.restarts == 1 else min(0.125 * 2 ** min(self.restarts, 11), self._max_delay_seconds)

    def restart_if_due(self) -> bool:
        """Restart a dead process after the backoff; return True if it was restarted."""
        if self._process is not None or self._stopping or self.exhausted or time.monotonic() < self._restart_at:
            return False
        self.start()
        return True

    def terminate(self) -> None:
        """Ask the module to stop."""
        self._stopping = True
        if self._process and self._process.poll() is None:
            self._process.terminate()

    def join(self, deadline: float) -> None:
        """Wait for the module to end until `deadline` (`time.monotonic`), then kill its whole process group."""
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        self._process.kill()
        self._process.wait()
        self._process = None

    def kill(self, reason: str) -> None:
        """Send SIGKILL to a hanging module; `poll` then schedules the restart. `reason` becomes its last words, since
        SIGKILL leaves it no time for its own."""
        if self._process:
            self._process.kill()
            with self._log.open("a") as log:
                print(f"\n{reason}", file=log)

    def last_words(self) -> str:
        """Return the last line that the process printed to stderr, with the advice below it."""
        lines = self._stderr().strip().splitlines()
        is_advice = bool(lines) and lines[-1].lstrip().startswith("->")
        return "\n".join(lines[-2 if is_advice else -1 :])

    def last_traceback(self) -> str:
        """Return the last traceback that the process printed, and all text after it; empty if there is none."""
        said = self._stderr()
        begin = said.rfind(TRACEBACK)
        return said[begin:].strip() if begin >= 0 else ""

    def _stderr(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""
