"""Limit on the processor time of a block, by a signal of the process's own timer."""

import signal
from types import FrameType
from typing import Self


class ProcessorTimeError(Exception):
    """The block needed more processor time than its limit."""


class ProcessorTime:
    """Context manager that raises `ProcessorTimeError` in a block that computes for longer than `seconds`.

    It needs the main thread of a process without another use of `SIGVTALRM`, and code that lets signals interrupt it:
    Python's own, and the module `re`, which asks for signals while it backtracks.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._running = seconds, False

    def __enter__(self) -> Self:
        self._running = True
        self._before = signal.signal(signal.SIGVTALRM, self._expire)
        signal.setitimer(signal.ITIMER_VIRTUAL, self._seconds)
        return self

    def __exit__(self, *_: object) -> None:
        self._running = False  # a signal that is already on its way has no effect
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, self._before)

    def _expire(self, _number: int, _frame: FrameType | None) -> None:
        if self._running:
            raise ProcessorTimeError(f"more than {self._seconds:g} s of processor time")
