"""The table against TRL in `docs/performance.md`, from the raw results of `benchmarks/against_trl.py`."""

import statistics
from collections import defaultdict
from pathlib import Path

from benchmarks.raw_results import RawResults
from benchmarks.trl_contenders.base import Run

OURS, FACTORY, FUNCTION = "quartet", "environment_factory", "rollout_func"


def table(file: Path) -> str:
    """Return a table with one row per delay: medians of trained rollouts per second, and of ratios per repetition."""
    rates: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    finished: dict[int, dict[int, float]] = defaultdict(dict)
    for key, run in RawResults(file, Run).read():
        name, delay, repetition, warm_up = (key[part] for part in ("contender", "delay", "repetition", "warm_up_steps"))
        rates[name, delay][repetition] = run.trained_rollouts_per_second(warm_up)
        if name == OURS:
            finished[delay][repetition] = run.rollouts_per_second(warm_up)
    headings = (
        "ms per step",
        f"`{FACTORY}`",
        f"`{FUNCTION}`",
        "Quartet",
        "finished",
        "ratio to the first",
        "ratio to the second",
    )
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    for delay in sorted(finished):
        cells = [_median(rates[name, delay]) for name in (FACTORY, FUNCTION, OURS)] + [_median(finished[delay])]
        ratios = (_ratio(rates[OURS, delay], rates[name, delay]) for name in (FACTORY, FUNCTION))
        lines.append(
            f"| {' | '.join([str(delay), *(f'{cell:.2f}' for cell in cells), *(f'{one:.1f}' for one in ratios)])} |"
        )
    return "\n".join(lines)


def _median(by_repetition: dict[int, float]) -> float:
    return statistics.median(by_repetition.values())


def _ratio(ours: dict[int, float], theirs: dict[int, float]) -> float:
    return statistics.median(ours[repetition] / theirs[repetition] for repetition in ours.keys() & theirs.keys())


VIEWS = {"table": table}
