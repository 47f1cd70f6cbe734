"""Processor time of processes with their descendants, and the duration of a call by either clock."""

import time
from collections.abc import Callable

import psutil

Timer = Callable[[Callable[[], object]], float]
"""Function that makes a call and returns the seconds that it took."""


def tree_seconds(root: psutil.Process) -> float:
    """Return the processor seconds of a process and its descendants so far, in steps of the system's ticks (10 ms).

    A descendant that has ended counts if its parent has waited for it. Raises `psutil.NoSuchProcess` if `root` ended.
    """
    times = root.cpu_times()
    return times.user + times.system + _seconds_below(root)


def wall_seconds(call: Callable[[], object]) -> float:
    """Make the call and return its seconds by the clock."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def processor_seconds(call: Callable[[], object]) -> float:
    """Make the call and return the processor seconds of all threads of this process and of its descendants."""
    this = psutil.Process()
    below = _seconds_below(this)
    began = time.process_time()
    call()
    own = time.process_time() - began  # before the descendants are read, which takes milliseconds
    return own + _seconds_below(this) - below


def _seconds_below(root: psutil.Process) -> float:
    while True:
        ended, alive = root.cpu_times(), root.children(recursive=True)  # parents precede their children
        seconds = ended.children_user + ended.children_system
        try:
            for process in alive:
                times = process.cpu_times()
                seconds += times.user + times.system + times.children_user + times.children_system
        except psutil.NoSuchProcess:
            continue  # one ended after its parent was read, so its time is missing
        return seconds
