"""Tables of an experiment: whether each claim holds, and the figures of each arm, with 95 % intervals over seeds."""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchmarks.learning_experiments import find
from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured
from benchmarks.learning_experiments.verdicts import Verdict, verdicts
from benchmarks.locks.statistics import Interval, interval
from benchmarks.raw_results import RawResults


class Run(Measured, frozen=True, kw_only=True):
    """Result of one run as it is stored."""

    cpu_seconds: float


Runs = Mapping[str, Mapping[int, Run]]
"""Arm -> seed -> run of the measured arms, which have the same seeds."""


def claims_table(file: Path) -> str:
    """Return a table with one row per claim: what was measured, paired by seed, and whether the claim holds."""
    experiment = _experiment(file)
    runs = runs_of(file, experiment)
    lines = ["| claim | measured (95 % interval) | p (Holm) | holds |", "|---|---|---|---|"]
    for verdict in _verdicts(experiment, runs):
        claim = verdict.claim
        measured = shown(experiment.figures[claim.figure], verdict.measured, signed=claim.against is not None)
        p = f"{verdict.p:.3f}" if verdict.p >= 0.001 else "< 0.001"
        lines.append(f"| {claim.text} | {measured} | {p} | {verdict.holds} |")
    lines += [f"| {claim.text} | not measured | – | – |" for claim in experiment.claims if not _measured(claim, runs)]
    return "\n".join(lines)


def figures_table(file: Path) -> str:
    """Return a table with one row per arm: each figure, and its paired difference to the first arm."""
    experiment = _experiment(file)
    runs = runs_of(file, experiment)
    baseline = next(iter(experiment.arms))
    headings = [f"{figure.heading} | difference to `{baseline}`" for figure in experiment.figures.values()]
    lines = [f"| arm | {' | '.join(headings)} | tokens |", "|---" * (2 + 2 * len(headings)) + "|"]
    for arm in experiment.arms:
        if arm not in runs:
            lines.append(f"| `{arm}` |" + " not measured |" * (1 + 2 * len(headings)))
            continue
        cells = []
        for name, figure in experiment.figures.items():
            cells += _cells(
                figure, _values(runs, arm, name), None if arm == baseline else _values(runs, baseline, name)
            )
        tokens = [run.tokens for run in runs[arm].values()]
        lines.append(f"| `{arm}` | {' | '.join(cells)} | {sum(tokens) / len(tokens):,.0f} |")
    return "\n".join(lines)


def compared(file: Path) -> dict[str, Any]:
    """Return the figures of each arm with their intervals, and the claims with their verdicts."""
    experiment = _experiment(file)
    runs = runs_of(file, experiment)
    claims = {found.claim.text: {"holds": found.holds, "p": found.p} for found in _verdicts(experiment, runs)}
    names = list(experiment.figures)
    figures = {arm: {name: interval(list(_values(runs, arm, name).values())) for name in names} for arm in runs}
    return {"claims": claims, "figures": figures}


def first_verdict(file: Path) -> tuple[Verdict, Figure, Mapping[int, Run]]:
    """Return the verdict on the first claim of an experiment, its figure, and the runs of its arm by seed."""
    experiment = _experiment(file)
    runs = runs_of(file, experiment)
    verdict = _verdicts(experiment, runs)[0]
    return verdict, experiment.figures[verdict.claim.figure], runs[verdict.claim.arm]


def shown(figure: Figure, found: Interval, *, signed: bool = False) -> str:
    """Return mean and interval as text."""
    sign = "+" if signed else ""
    mean, low, high = (f"{figure.factor * value:{sign}.{figure.digits}f}" for value in found)
    return f"{mean} ({low} to {high})".replace("-", "−")


def _cells(figure: Figure, values: Mapping[int, float], baseline: Mapping[int, float] | None) -> list[str]:
    """Return the figure of an arm and its difference to the baseline, as texts.

    A figure that reached its limit in every run has no interval.
    """
    values_N = list(values.values())
    if figure.limit is not None and all(value >= figure.limit for value in values_N):
        return [f"≥ {figure.factor * figure.limit:.{figure.digits}f}", "not known"]
    difference = "–" if baseline is None else shown(figure, interval(_differences(values, baseline)), signed=True)
    return [shown(figure, interval(values_N)), difference]


def _verdicts(experiment: type[Experiment], runs: Runs) -> list[Verdict]:
    measured = []
    for claim in filter(partial(_measured, runs=runs), experiment.claims):
        values = _values(runs, claim.arm, claim.figure)
        against = None if claim.against is None else _values(runs, claim.against, claim.figure)
        measured.append((claim, list(values.values()) if against is None else _differences(values, against)))
    return verdicts(measured)


def _measured(claim: Claim, runs: Runs) -> bool:
    return claim.arm in runs and (claim.against is None or claim.against in runs)


def _differences(values: Mapping[int, float], against: Mapping[int, float]) -> list[float]:
    return [value - against[seed] for seed, value in values.items()]


def _values(runs: Runs, arm: str, figure: str) -> dict[int, float]:
    return {seed: run.figures[figure] for seed, run in sorted(runs[arm].items())}


def _experiment(file: Path) -> type[Experiment]:
    family, _, name = file.stem.partition("_")
    return find(name, family)


def runs_of(file: Path, experiment: type[Experiment]) -> Runs:
    """Return the runs of all measured arms; the others are shown as not measured.

    Raises `click.ClickException` if an arm's settings are not those of the experiment, or the arms' seeds differ.
    """
    runs: dict[str, dict[int, Run]] = defaultdict(dict)
    for key, run in RawResults(file, Run).read():
        arm = key["arm"]
        now = experiment.settings(arm) if arm in experiment.arms else None
        if now != key["settings"]:
            raise click.ClickException(f"{file}: {arm!r} was measured with {key['settings']}, and is now {now}")
        runs[arm][key["seed"]] = run
    seeds = {arm: sorted(found) for arm, found in runs.items()}
    if any(found != next(iter(seeds.values())) for found in seeds.values()):
        raise click.ClickException(f"{file}: the arms differ in their seeds: {seeds}")
    return runs


VIEWS = {"claims": claims_table, "figures": figures_table}
