"""Start of a module as several ranks, with the environment variables that `torchrun` sets."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct

from quartet.free_port import HOST, free_port
from quartet.runtime.start_process import Started, StartedHere, StartMethod, start_process

P = TypeVar("P", bound=Started)
LAST_WORDS_SECONDS = 5.0
"""Time for rank 0 to record the failure of another rank in the ledger, before all ranks are killed."""


class Meeting(Struct, frozen=True):
    """Ranks over several nodes: where they meet, which is the node of rank 0, and how many there are."""

    host: str
    port: int
    size: int
    first_rank: int
    """Number of the first rank on this node."""


def start_ranks(
    method: StartMethod,
    module: str,
    run_dir: Path,
    log: Path,
    *,
    threads: int,
    ranks: int = 1,
    meeting: Meeting | None = None,
) -> StartedHere:
    """Start a module as `ranks` processes of this machine, which are treated as one process. By default these are all
    ranks, and meet on the loopback address.

    The variables replace those of a launcher that started the supervisor, such as SLURM or Kubeflow.
    """
    meeting = meeting or Meeting(HOST, free_port(), ranks, 0)
    common = {"WORLD_SIZE": str(meeting.size), "MASTER_ADDR": meeting.host, "MASTER_PORT": str(meeting.port)}
    started: list[StartedHere] = []
    with ExitStack() as on_error:
        for n in range(ranks):
            variables = {**common, "RANK": str(meeting.first_rank + n), "LOCAL_RANK": str(n)}
            started.append(start_process(method, module, run_dir, log, threads=threads, variables=variables))
            on_error.callback(started[-1].kill)
        on_error.pop_all()
    return started[0] if ranks == 1 else StartedRanks(started)


class Together(Generic[P]):
    """Processes that stop and die together. The first one leads: it is asked to stop, and ends the others."""

    def __init__(self, processes: Sequence[P]) -> None:
        self._processes = processes
        self._first_death_at: float | None = None

    def poll(self) -> int | None:
        """Return the exit code of the first process, or of another one that died, if the first does not end soon after
        it."""
        codes = [process.poll() for process in self._processes]
        died = [code for code in codes if code is not None]
        if codes[0] is not None or not died:
            return codes[0]
        self._first_death_at = self._first_death_at or time.monotonic()
        return died[0] if time.monotonic() - self._first_death_at > LAST_WORDS_SECONDS else None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code of the first process when all have ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for process in reversed(self._processes):
            process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self._processes[0].wait(timeout)

    def terminate(self) -> None:
        """Ask the first process to stop."""
        self._processes[0].terminate()

    def kill(self) -> None:
        """Send SIGKILL to all processes and their children."""
        for process in self._processes:
            process.kill()


class StartedRanks(Together[StartedHere]):
    """Ranks of a trainer on this machine."""

    @property
    def pid(self) -> int:
        """Process id of rank 0."""
        return self._processes[0].pid

    @property
    def pids(self) -> list[int]:
        """Process ids of all ranks."""
        return [process.pid for process in self._processes]
