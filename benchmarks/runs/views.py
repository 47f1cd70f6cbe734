"""Tables of whole runs: success per seed, success per family, and the mean over seeds with its interval."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from benchmarks.locks.statistics import interval
from benchmarks.raw_results import RawResults


class Summary(Struct, frozen=True, kw_only=True):
    """The part of a run's `summary.json` that is kept."""

    stop_reason: str
    success_before: float | None
    success_after: float | None
    success_before_sampled: float | None
    success_after_sampled: float | None
    success_undemonstrated_before: float | None
    success_undemonstrated_after: float | None
    success_before_blind: float | None
    success_after_blind: float | None
    per_task: dict[str, dict[str, float | None]]
    rollouts_to_target: int | None
    rollouts_finished: int
    train_steps: int
    replayed: int
    dropped_groups: dict[str, int]
    train_seconds: float
    lost: int
    trained_twice: int


COLUMNS: dict[str, Callable[[Summary], float | None]] = {
    "before, greedy": lambda run: run.success_before,
    "after, greedy": lambda run: run.success_after,
    "before, sampled": lambda run: run.success_before_sampled,
    "after, sampled": lambda run: run.success_after_sampled,
    "without demonstrations, before": lambda run: run.success_undemonstrated_before,
    "without demonstrations, after": lambda run: run.success_undemonstrated_after,
    "blind, before": lambda run: run.success_before_blind,
    "blind, after": lambda run: run.success_after_blind,
}
"""Success in columns of the table of seeds; a column that no run has is left out."""


def seeds_table(file: Path) -> str:
    """Return a table per choice of settings, with one row per seed, and the means with 95 % intervals over seeds."""
    return _per_settings(file, _seeds_table)


def families_table(file: Path) -> str:
    """Return a table per choice of settings, with one row per task family, those with most success first."""
    return _per_settings(file, _families_table)


def mean(file: Path) -> str:
    """Return the mean greedy success after training, with its interval if there are two seeds or more, of the settings
    that were measured last."""
    values = [run.success_after or 0 for run in [*_runs(file).values()][-1].values()]
    return _interval(values) if len(values) > 1 else f"{100 * values[0]:.1f} %"


def _per_settings(file: Path, table: Callable[[dict[int, Summary]], str]) -> str:
    """Return the tables one after another; with several choices of settings, each below its settings."""
    runs = _runs(file)
    if len(runs) == 1:
        return table(*runs.values())
    return "\n\n".join(f"{_named(settings)}:\n\n{table(of_seed)}" for settings, of_seed in runs.items())


def _named(settings: tuple[str, ...]) -> str:
    return "With " + ", ".join(f"`{setting}`" for setting in settings) if settings else "As the recipe is"


def _seeds_table(runs: dict[int, Summary]) -> str:
    columns = {name: of for name, of in COLUMNS.items() if all(of(run) is not None for run in runs.values())}
    lines = [f"| seed | {' | '.join(columns)} | rollouts | train steps |", "|---" * (3 + len(columns)) + "|"]
    for seed, run in runs.items():
        cells = [f"{100 * (of(run) or 0):.1f} %" for of in columns.values()]
        lines.append(f"| {seed} | {' | '.join(cells)} | {run.rollouts_finished:,} | {run.train_steps} |")
    if len(runs) > 1:
        means = [_interval([of(run) or 0 for run in runs.values()]) for of in columns.values()]
        lines.append(f"| mean | {' | '.join(means)} | | |")
    return "\n".join(lines)


def _families_table(runs: dict[int, Summary]) -> str:
    of_family = {
        family: [run.per_task[family] for run in runs.values()] for family in next(iter(runs.values())).per_task
    }
    after = {family: [task["after"] or 0 for task in tasks] for family, tasks in of_family.items()}
    lines = [f"| family | before | after, seeds {' / '.join(map(str, runs))} |", "|---|---|---|"]
    for family in sorted(of_family, key=lambda name: -sum(after[name])):
        before = 100 * (of_family[family][0]["before"] or 0)
        lines.append(f"| {family} | {before:.0f} | {' / '.join(f'{100 * value:.0f}' for value in after[family])} |")
    return "\n".join(lines)


def _runs(file: Path) -> dict[tuple[str, ...], dict[int, Summary]]:
    """Return the runs by their settings, those measured last at the end, and then by seed."""
    found: dict[tuple[str, ...], dict[int, Summary]] = {}
    for key, run in RawResults(file, Summary).read():
        settings = tuple(key["settings"])
        found[settings] = found.pop(settings, {}) | {key["seed"]: run}
    return {settings: dict(sorted(of_seed.items())) for settings, of_seed in found.items()}


def _interval(values: list[float]) -> str:
    middle, low, high = (100 * bound for bound in interval(values))
    return f"{middle:.1f} % ({low:.1f} to {high:.1f})"


VIEWS = {"seeds": seeds_table, "families": families_table, "mean": mean}
