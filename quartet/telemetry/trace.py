"""Current trace: worker, engine and environment host record their work for one rollout as spans of one trace.

The worker names the trace around a rollout. Calls to other modules pass it on: to the engine in a header, to the
environment host with the reset.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

HEADER = "X-Quartet-Trace"
_CURRENT = ContextVar("trace", default="")


@contextmanager
def traced(trace: str) -> Iterator[None]:
    """Assign calls inside the block, by this coroutine and those it starts, to `trace`."""
    token = _CURRENT.set(trace)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_trace() -> str:
    """Return the current trace; empty for work without one, or with one whose spans are not recorded."""
    return _CURRENT.get()
