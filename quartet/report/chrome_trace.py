"""Time window of a run as Chrome trace JSON, for Perfetto (ui.perfetto.dev) and chrome://tracing.

The format is the "Trace Event Format" (Google, 2016): complete events (`ph` X) with times in microseconds, and metadata
events that name processes and threads. Each role becomes a process, each lane (such as a worker's slot) a thread.
"""

import re
from collections.abc import Sequence
from typing import Any

from quartet.telemetry.activities import WAIT
from quartet.telemetry.spans import Span

_MODULES = ("manager", "env", "worker", "engine", "trainer")
_NUMBER = re.compile("[0-9]{1,9}")
MODULE_LANE = "module"
"""Name of the row with the spans of a role that belong to no lane."""


def chrome_trace(spans: Sequence[Span], start: float) -> dict[str, Any]:
    """Return the trace object of `spans`; its time 0 is `start` (Unix seconds)."""
    rows = sorted({(span.role, span.lane) for span in spans}, key=row_order)
    roles = list(dict.fromkeys(role for role, _ in rows))
    threads = {row: number for number, row in enumerate(rows)}
    names = [_named("process_name", pid, 0, role) for pid, role in enumerate(roles)]
    names += [
        _named("thread_name", roles.index(role), thread, lane or MODULE_LANE)
        for (role, lane), thread in threads.items()
    ]
    events = [_event(span, start, roles.index(span.role), threads[span.role, span.lane]) for span in spans]
    return {"traceEvents": names + events, "displayTimeUnit": "ms", "otherData": {"start_unix_seconds": start}}


def row_order(row: tuple[str, str]) -> tuple[int, str, str, int]:
    """Return the sort key of a row (role, lane): modules in the order of the data flow, then a role's row without a
    lane, then its lanes by number."""
    role, lane = row
    module = role.partition("-")[0]
    rank = _MODULES.index(module) if module in _MODULES else len(_MODULES)
    thing, _, number = lane.rpartition(" ")
    return (rank, role, thing, int(number)) if _NUMBER.fullmatch(number) else (rank, role, lane, -1)


def _event(span: Span, start: float, pid: int, thread: int) -> dict[str, Any]:
    about = {"trace": span.trace, "reason": span.reason, **span.fields}
    return {
        "ph": "X",
        "name": f"wait: {span.reason}" if span.name == WAIT and span.reason else span.name,
        "cat": span.name,
        "ts": round((span.start - start) * 1e6),
        "dur": round(span.seconds * 1e6),
        "pid": pid,
        "tid": thread,
        "args": {name: value for name, value in about.items() if value not in ("", None)},
    }


def _named(kind: str, pid: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": thread, "args": {"name": name}}
