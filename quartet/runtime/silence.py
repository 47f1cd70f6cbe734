"""Silence of a module: the time since its last heartbeat, and how much of it is the fault of other programs.

A restart helps a module that hangs. It does not help one that waits for a processor: the next process would wait as
well, and lose the work of the first. So time in which the module was runnable and no processor was free for it is not
counted, up to `Runtime.longest_silence_seconds`. That bound is for a module that hangs in a loop on such a machine, and
for one of which another thread than the hanging one waits.
"""

from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from quartet.config.running import Runtime
from quartet.report.show import duration, times


class Silence(Struct, frozen=True, kw_only=True):
    """Time without a heartbeat, since the last one or the start of the process."""

    seconds: float
    waited_seconds: float | None
    """Part of `seconds` that the module waited for a processor; None if that is not known (`processor_waits`)."""

    def is_too_long(self, runtime: Runtime) -> bool:
        """Return whether the module must be killed."""
        counted = self.seconds - (self.waited_seconds or 0.0)
        return counted > runtime.heartbeat_timeout_seconds or self.seconds > runtime.longest_silence_seconds

    def __str__(self) -> str:
        waited = self.waited_seconds
        share = "" if waited is None else f", of which it waited {duration(waited)} for a processor"
        return f"no heartbeat for {duration(self.seconds)}{share}"


class SilentKills(Struct, frozen=True):
    """Kills of one module because of its silence, since the run's newest train step."""

    count: int = 0
    train_steps: int = 0
    """Number of train steps of the run at the newest kill, over all policies."""

    def and_one(self, train_steps: int) -> "SilentKills":
        """Return the kills with a further one, when the run has made `train_steps` train steps."""
        return SilentKills(self.count + 1 if self.train_steps == train_steps else 1, train_steps)

    @property
    def repeated(self) -> str:
        """Text that says so if the module was killed before without progress; else empty."""
        return "" if self.count < 2 else f", {times(self.count)} in a row without a train step in between"


def processor_waits(pid: int) -> dict[int, float]:
    """Return for each thread of a process of this machine how many seconds it has been runnable without running, by
    thread id.

    Linux adds a wait once it has ended, so of a single wait that lasts longer than the limit nothing is known in time.
    Return no threads if the process has ended, or the kernel has no such statistics; then all silence counts.
    """
    waits = {}
    with suppress(FileNotFoundError, ProcessLookupError):  # the process has ended, or the system is not Linux
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended, or there are no statistics
                waits[int(thread.name)] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return waits


def longest_wait(before: dict[int, float], now: dict[int, float]) -> float | None:
    """Return by how much the wait of one thread has grown at most between two results of `processor_waits`.

    The maximum, not the sum, since threads wait at the same time. A thread is not named in advance: the one that
    computes may be a worker of PyTorch, while the one that sends heartbeats waits for it. None without threads.
    """
    return max((waited - before.get(thread, 0.0) for thread, waited in now.items()), default=None)
