"""Which trace the work at hand belongs to, wherever it is done: what worker, engine and environment host do for one
rollout are spans of one trace.

The worker names it around a rollout; whoever calls another module on behalf of that rollout hands it on, to the engine
in a header, to the environment host with the reset.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

HEADER = "X-Quartet-Trace"
_CURRENT = ContextVar("trace", default="")


@contextmanager
def traced(trace: str) -> Iterator[None]:
    """What is called inside the block, by this coroutine and by those it starts, belongs to `trace`."""
    token = _CURRENT.set(trace)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_trace() -> str:
    """Empty for work of no trace, and of one whose spans are not recorded."""
    return _CURRENT.get()
