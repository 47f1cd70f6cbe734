"""Start of a module as several ranks, with the environment variables that `torchrun` sets."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from quartet.free_port import HOST, free_port
from quartet.runtime.start_process import StartedHere, StartMethod, start_process

LAST_WORDS_SECONDS = 5.0
"""Time for rank 0 to record the failure of another rank in the ledger, before all ranks are killed."""


def start_ranks(
    method: StartMethod, module: str, run_dir: Path, log: Path, *, threads: int, ranks: int = 1
) -> StartedHere:
    """Start a module as `ranks` processes, which are treated as one process.

    The variables replace those of a launcher that started the supervisor, such as SLURM or Kubeflow.
    """
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": HOST, "MASTER_PORT": str(free_port())}
    started: list[StartedHere] = []
    with ExitStack() as on_error:
        for n in range(ranks):
            variables = {**common, "RANK": str(n), "LOCAL_RANK": str(n)}
            started.append(start_process(method, module, run_dir, log, threads=threads, variables=variables))
            on_error.callback(started[-1].kill)
        on_error.pop_all()
    return started[0] if ranks == 1 else StartedRanks(started)


class StartedRanks:
    """Processes that stop and die together. Rank 0 leads: it is asked to stop, and ends the others."""

    def __init__(self, processes: Sequence[StartedHere]) -> None:
        self._processes = processes
        self._first_death_at: float | None = None

    @property
    def pid(self) -> int:
        """Process id of rank 0."""
        return self._processes[0].pid

    @property
    def pids(self) -> list[int]:
        """Process ids of all ranks."""
        return [process.pid for process in self._processes]

    def poll(self) -> int | None:
        """Return the exit code of rank 0, or of another rank that died, if rank 0 does not end soon after it."""
        codes = [process.poll() for process in self._processes]
        died = [code for code in codes if code is not None]
        if codes[0] is not None or not died:
            return codes[0]
        self._first_death_at = self._first_death_at or time.monotonic()
        return died[0] if time.monotonic() - self._first_death_at > LAST_WORDS_SECONDS else None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code of rank 0 when all ranks have ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for process in reversed(self._processes):
            process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self._processes[0].wait(timeout)

    def terminate(self) -> None:
        """Ask rank 0 to stop."""
        self._processes[0].terminate()

    def kill(self) -> None:
        """Send SIGKILL to all ranks and their children."""
        for process in self._processes:
            process.kill()
