"""Runs of one method, and one method against another, paired by seed."""

from collections.abc import Callable, Sequence
from math import floor
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from quartet.report.comparison.intervals import Interval, interval
from quartet.report.comparison.results import RunResult
from quartet.report.labels import HELD_OUT, HELD_OUT_SAMPLED, TRAINING_ROLLOUTS
from quartet.report.show import percent

TARGET_STEP = 0.05
MOST_SETTINGS_IN_LABEL = 2
Value = Callable[[RunResult], float | None]


class Group(Struct, frozen=True, kw_only=True):
    """Runs that differ in nothing but their seed (and in where they ran)."""

    label: str
    runs: list[RunResult]

    def value(self, value: Value) -> Interval | None:
        """Over the runs; None unless every run has one."""
        values = [value(run) for run in self.runs]
        known = [one for one in values if one is not None]
        return interval(known) if known and len(known) == len(values) else None

    def minus(self, other: "Group", value: Value) -> Interval | None:
        """The mean difference over the seeds that both have; None when they share none with a value."""
        theirs = {run.seed: value(run) for run in other.runs}
        pairs = [(value(run), theirs.get(run.seed)) for run in self.runs]
        gains = [mine - their for mine, their in pairs if mine is not None and their is not None]
        return interval(gains) if gains else None


class Row(NamedTuple):
    """One line of the comparison: whole numbers, in the unit that its label names."""

    key: str
    label: str
    value: Value
    scale: float = 1.0
    at_start: Callable[[RunResult], bool] | None = None
    """True if a run had it before training."""


def rows(target: float) -> list[Row]:
    """Compared figures: success, its cost, and the cost of the target."""
    to = f"to {percent(target)}"
    return [
        Row("success_before", f"{HELD_OUT} before, %", lambda run: run.success_before, 100),
        Row("success", f"{HELD_OUT} after, %", lambda run: run.success, 100),
        Row("success_sampled", f"{HELD_OUT_SAMPLED}, %", lambda run: run.success_sampled, 100),
        Row("train_seconds", "training, s", lambda run: run.train_seconds),
        Row("train_steps", "train steps", lambda run: run.train_steps),
        Row("rollouts", TRAINING_ROLLOUTS, lambda run: run.rollouts),
        Row("generated_tokens", "tokens generated", lambda run: run.generated_tokens),
        Row("prompt_tokens", "tokens read", lambda run: run.prompt_tokens),
        _to_target(target, "seconds", f"{to}: s on the clock"),
        _to_target(target, "rollouts", f"{to}: rollouts"),
        _to_target(target, "generated_tokens", f"{to}: tokens generated"),
    ]


def target_note(target: float, *, named: bool) -> str:
    """Return the meaning of the target's rows, its origin (`named` by the user, or not), and its clock."""
    source = "as asked for" if named else "the highest multiple of 5 % that every run reached; --target names another"
    return (
        f"to {percent(target)}: until the first held-out evaluation (greedy) with that success, {source}. "
        "Its seconds are wall time since the first training group, with evaluations and pauses; "
        "`training, s` leaves them out."
    )


def group_runs(results: Sequence[RunResult]) -> list[Group]:
    """By method, in the order of the first run of each."""
    methods: list[list[RunResult]] = []
    for result in results:
        same = next((runs for runs in methods if runs[0].settings == result.settings), None)
        methods.append([result]) if same is None else same.append(result)
    return [Group(label=label, runs=runs) for label, runs in zip(_labels(methods), methods, strict=True)]


def differing_settings(groups: Sequence[Group]) -> dict[str, list[Any]]:
    """Dotted name -> value in each group, of what is not the same in all."""
    return _differing([group.runs for group in groups])


def common_target(results: Sequence[RunResult]) -> float:
    """The highest multiple of 5 % that every run reached at some time; 0 when one has no evaluation."""
    best = min(max((point.success for point in result.curve), default=0.0) for result in results)
    return floor(best / TARGET_STEP + 1e-9) * TARGET_STEP


def _to_target(target: float, cost: str, label: str) -> Row:
    def value(run: RunResult) -> float | None:
        point = run.reached(target)
        return None if point is None else float(getattr(point, cost))

    return Row(f"target_{cost}", label, value, at_start=lambda run: run.reached_before_training(target))


def _labels(methods: list[list[RunResult]]) -> list[str]:
    """The name of a single run's folder, or of the recipe that several runs share; where that is not enough, with what
    they differ in, or a number when that is too much."""
    names = [Path(runs[0].run).resolve().name if len(runs) == 1 else runs[0].recipe for runs in methods]
    if len(set(names)) == len(names):
        return names
    differing = _differing(methods)
    if len(differing) > MOST_SETTINGS_IN_LABEL:
        return [f"{place}. {name}" for place, name in enumerate(names, start=1)]
    settings = (
        ", ".join(f"{setting} = {values[place]}" for setting, values in differing.items())
        for place in range(len(names))
    )
    return [f"{name} ({one})" for name, one in zip(names, settings, strict=True)]


def _differing(methods: list[list[RunResult]]) -> dict[str, list[Any]]:
    settings = dict.fromkeys(setting for runs in methods for setting in runs[0].settings)
    values = {setting: [runs[0].settings.get(setting) for runs in methods] for setting in settings}
    return {setting: each for setting, each in values.items() if any(value != each[0] for value in each)}
