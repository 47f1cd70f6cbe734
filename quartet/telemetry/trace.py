"""Current trace, under which worker, engine and environment host record their work for one rollout as spans.

The worker sets the trace for each rollout. Calls to other modules pass the trace on: to the engine in a header, to the
environment host with the reset.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

HEADER = "X-Quartet-Trace"
_CURRENT = ContextVar("trace", default="")


@contextmanager
def traced(trace: str) -> Iterator[None]:
    """Set the current trace inside the block, for this coroutine and the coroutines that it starts."""
    token = _CURRENT.set(trace)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_trace() -> str:
    """Return the current trace; empty if there is none, or if its spans are not recorded."""
    return _CURRENT.get()
