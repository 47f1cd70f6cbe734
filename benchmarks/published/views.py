"""Tables of the documentation from the raw results of `benchmarks/scale.py`, one file per part: `scale_dart.jsonl`."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from benchmarks.published import find
from benchmarks.published.base import Outcome
from benchmarks.published.rows import Row, finished_rows
from benchmarks.published.simulated import Simulated

PREFIX = "scale_"
"""Beginning of the names of the raw results."""
_VERDICTS = {None: "–", True: "yes", False: "no"}


def outcomes(file: Path) -> str:
    """Return the table of published and simulated values under the assumptions."""
    lines = ["| | published | simulated | reproduced |", "|---|---|---|---|"]
    for one in _rows(file)[0].outcomes.values():
        cells = (one.meaning, _published(one), _number(one.simulated), _VERDICTS[one.reproduced])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def variations(file: Path) -> str:
    """Return the table of simulated values, one row per finished variation; nothing if there is none."""
    rows = _rows(file)
    if len(rows) == 1:
        return ""
    headings = ["assumed", *(one.meaning for one in rows[0].outcomes.values())]
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    for row in rows:
        name = ", ".join(f"`{setting}` {_setting(value)}" for setting, value in row.changes.items()) or "as stated"
        lines.append(f"| {' | '.join((name, *(_number(one.simulated) for one in row.outcomes.values())))} |")
    return "\n".join(lines)


def finished(file: Path) -> str:
    """Return how many of the variations are finished, as text."""
    return f"{len(_rows(file)) - 1} of {len(find(_part(file)).variations)}"


def assumed(file: Path) -> str:
    """Return all assumed settings, calibrated ones included, as text."""
    first = _rows(file)[0].assumed
    return ", ".join(f"`{name}` {_setting(getattr(first, name))}" for name in first.__struct_fields__)


def command(file: Path) -> str:
    """Return the command that makes the results, or takes them from the file."""
    length = Simulated[Any](file).length
    assert length is not None, "a file of raw results has at least one line"
    options = f"--warm-steps {length.warm_steps} --train-steps {length.train_steps}"
    return f"`python -m benchmarks.scale --parts {_part(file)} {options} --json`"


def _part(file: Path) -> str:
    return file.stem.removeprefix(PREFIX)


def _rows(file: Path) -> list[Row[Any]]:
    found = list(finished_rows(find(_part(file)), Simulated[Any](file)))
    if not found or found[0].changes:
        raise click.ClickException(f"{file} lacks systems under the part's own assumptions: run benchmarks.scale")
    return found


def _published(outcome: Outcome) -> str:
    if outcome.published is None:
        return "–"
    low, high = outcome.published
    if low == high:
        return _number(low)
    return f"at least {_number(low)}" if math.isinf(high) else f"{_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _setting(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


VIEWS: dict[str, Callable[[Path], str]] = {
    "outcomes": outcomes,
    "variations": variations,
    "finished": finished,
    "assumed": assumed,
    "command": command,
}
