"""Result of a method in one record and in one cell, and the tables of its recipe's page."""

from pathlib import Path
from typing import Any

from benchmarks.learning_experiments.report import VIEWS as TABLES
from benchmarks.learning_experiments.report import first_verdict, runs_of, shown
from benchmarks.locks.statistics import interval
from benchmarks.strategies.capabench import PARTS, Main, arm
from benchmarks.strategies.shapley import coalitions, shapley

_HELPS = {"yes": True, "no": False}
"""Verdict on the first claim -> whether the method helps; any other verdict is shown as it is."""


def summary(file: Path) -> dict[str, Any]:
    """Return whether a method helps, by its first claim, with the measured difference to the baseline."""
    verdict, figure, runs = first_verdict(file)
    mean, low, high = verdict.measured
    tokens = [run.tokens for run in runs.values()]
    return {
        "helps": _HELPS.get(verdict.holds, verdict.holds),
        "claim": verdict.claim.text,
        "figure": figure.heading,
        "difference": figure.factor * mean,
        "interval": [figure.factor * low, figure.factor * high],
        "seeds": sorted(runs),
        "tokens": sum(tokens) / len(tokens),
    }


def result(file: Path) -> str:
    """Return the verdict on the first claim and the measured difference, as the text of a cell."""
    verdict, figure, _ = first_verdict(file)
    return f"{verdict.holds}: {shown(figure, verdict.measured, signed=True)}"


def attribution(file: Path) -> str:
    """Return a table of the Shapley values of CapaBench's parts, in points of success per token, with intervals over
    seeds."""
    runs, figure = runs_of(file, Main), Main.figures["area"]
    of_seed = [
        shapley([*PARTS], {some: runs[arm(some)][seed].figures["area"] for some in coalitions([*PARTS])})
        for seed in sorted(runs[arm(frozenset())])
    ]
    lines = ["| part | settings | Shapley value, points (95 % interval) |", "|---|---|---|"]
    for part, settings in PARTS.items():
        value = shown(figure, interval([values[part] for values in of_seed]), signed=True)
        lines.append(f"| {part} | {', '.join(f'`{setting}`' for setting in settings)} | {value} |")
    together = shown(figure, interval([sum(values.values()) for values in of_seed]), signed=True)
    return "\n".join([*lines, f"| all together | | {together} |"])


VIEWS = {**TABLES, "result": result, "attribution": attribution}
