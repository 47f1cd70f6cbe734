"""Tables of an experiment: whether each claim holds, and the figures of each arm, with 95 % intervals over seeds."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.learning_experiments import find
from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured
from benchmarks.locks.statistics import Interval, interval
from benchmarks.raw_results import RawResults


class Run(Measured, frozen=True, kw_only=True):
    """Result of one run as it is stored."""

    cpu_seconds: float


Runs = Mapping[str, Mapping[int, Run]]
"""Arm -> seed -> run."""


def claims_table(file: Path) -> str:
    """Return a table with one row per claim: what was measured, paired by seed, and whether the claim holds."""
    experiment, runs = _experiment(file), _runs(file)
    lines = ["| claim | measured (95 % interval) | holds |", "|---|---|---|"]
    for claim in experiment.claims:
        found = _of_claim(claim, runs)
        figure = experiment.figures[claim.figure]
        lines.append(
            f"| {claim.text} | {shown(figure, found, signed=claim.against is not None)} | {verdict(claim, found)} |"
        )
    return "\n".join(lines)


def figures_table(file: Path) -> str:
    """Return a table with one row per arm: each figure, and its paired difference to the first arm."""
    experiment, runs = _experiment(file), _runs(file)
    baseline = next(iter(experiment.arms))
    headings = [f"{figure.heading} | difference to `{baseline}`" for figure in experiment.figures.values()]
    lines = [f"| arm | {' | '.join(headings)} | tokens |", "|---" * (2 + 2 * len(headings)) + "|"]
    for arm in experiment.arms:
        cells = []
        for name, figure in experiment.figures.items():
            cells.append(shown(figure, interval(_values(runs, arm, name))))
            other = None if arm == baseline else baseline
            cells.append("–" if other is None else shown(figure, _difference(runs, arm, other, name), signed=True))
        tokens = [run.tokens for run in runs[arm].values()]
        lines.append(f"| `{arm}` | {' | '.join(cells)} | {sum(tokens) / len(tokens):,.0f} |")
    return "\n".join(lines)


def compared(file: Path) -> dict[str, Any]:
    """Return the figures of each arm with their intervals, and the claims with their verdicts."""
    experiment, runs = _experiment(file), _runs(file)
    claims = {claim.text: verdict(claim, _of_claim(claim, runs)) for claim in experiment.claims}
    names = list(experiment.figures)
    figures = {arm: {name: interval(_values(runs, arm, name)) for name in names} for arm in experiment.arms}
    return {"claims": claims, "figures": figures}


def verdict(claim: Claim, found: Interval) -> str:
    """Return `yes` if the whole interval is on the claim's side of the bound, `no` if it is on the other side."""
    _, low, high = found
    if claim.above is not None:
        holds, refuted = low > claim.above, high < claim.above
    else:
        assert claim.below is not None, "a claim has a bound"
        holds, refuted = high < claim.below, low > claim.below
    return "yes" if holds else "no" if refuted else "not shown"


def shown(figure: Figure, found: Interval, *, signed: bool = False) -> str:
    """Return mean and interval as text."""
    sign = "+" if signed else ""
    mean, low, high = (f"{figure.factor * value:{sign}.{figure.digits}f}" for value in found)
    return f"{mean} ({low} to {high})".replace("-", "−")


def _of_claim(claim: Claim, runs: Runs) -> Interval:
    if claim.against is None:
        return interval(_values(runs, claim.arm, claim.figure))
    return _difference(runs, claim.arm, claim.against, claim.figure)


def _difference(runs: Runs, arm: str, other: str, figure: str) -> Interval:
    pairs = zip(_values(runs, arm, figure), _values(runs, other, figure), strict=True)
    return interval([value - against for value, against in pairs])


def _values(runs: Runs, arm: str, figure: str) -> list[float]:
    return [run.figures[figure] for _, run in sorted(runs[arm].items())]


def _experiment(file: Path) -> type[Experiment]:
    return find(file.stem.removeprefix("learning_"))


def _runs(file: Path) -> Runs:
    runs: dict[str, dict[int, Run]] = defaultdict(dict)
    for key, run in RawResults(file, Run).read():
        runs[key["arm"]][key["seed"]] = run
    return runs


VIEWS = {"claims": claims_table, "figures": figures_table}
