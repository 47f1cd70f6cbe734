"""Default time window of a run's timeline: the end of training.

A window at the end of the run would show only the last evaluation and the shutdown of the modules.
"""

from collections.abc import Iterator
from pathlib import Path

from quartet.telemetry.slices import SPANS, lines_of, run_extent, slice_names, writers
from quartet.telemetry.spans import Span, decode_spans

TRAINER, TRAIN_STEP = "trainer", "train_step"


def default_window(run_dir: Path, seconds: float) -> tuple[float, float] | None:
    """Return the start (Unix seconds) and length (seconds) of the window; None if nothing was recorded.

    The window ends with the last train step, or with the run if it has no train step. It is shorter than `seconds` if
    the records begin less than `seconds` before its end.
    """
    extent = run_extent(run_dir)
    if extent is None:
        return None
    first, last = extent
    end = min(_last_train_step(run_dir) or last, last)
    start = max(first, end - seconds)
    return start, end - start


def _last_train_step(run_dir: Path) -> float | None:
    """Return the end of the last train step of any policy, in Unix seconds. Each trainer's files are read backwards."""
    trainers = {writer.role for writer in writers(run_dir, SPANS) if writer.role.partition("-")[0] == TRAINER}
    steps = (next((one for one in _newest_first(run_dir, role) if one.name == TRAIN_STEP), None) for role in trainers)
    return max((step.end for step in steps if step is not None), default=None)


def _newest_first(run_dir: Path, role: str) -> Iterator[Span]:
    for writer in reversed(writers(run_dir, SPANS, (role,))):
        for name in reversed(slice_names(writer.folder)):
            yield from decode_spans(reversed(list(lines_of(writer.folder / name))))
