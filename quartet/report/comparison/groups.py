"""Groups of runs with the same method, and the difference of two groups, paired by seed."""

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
    """Runs of one method: they differ only in the seed and in the settings `NOT_THE_METHOD`."""

    label: str
    runs: list[RunResult]

    def value(self, value: Value) -> Interval | None:
        """Return the mean and the interval of `value` over the runs; None unless every run has the value."""
        values = [value(run) for run in self.runs]
        known = [one for one in values if one is not None]
        return interval(known) if known and len(known) == len(values) else None

    def minus(self, other: "Group", value: Value) -> Interval | None:
        """Return the mean difference, and its interval, over the seeds that both groups have.

        None if there is no such seed, or if a run of such a seed lacks the value: of the seeds on which both methods
        reach a target, the hard ones are missing.
        """
        theirs = {run.seed: value(run) for run in other.runs}
        pairs = [(value(run), theirs[run.seed]) for run in self.runs if run.seed in theirs]
        gains = [mine - their for mine, their in pairs if mine is not None and their is not None]
        return interval(gains) if gains and len(gains) == len(pairs) else None


class Row(NamedTuple):
    """One line of the comparison. Its values are shown as whole numbers in the unit that the label names."""

    key: str
    label: str
    value: Value
    scale: float = 1.0
    at_start: Callable[[RunResult], bool] | None = None
    """Function that returns whether a run reached the target of this line before training; None for a line without a
    target."""


def rows(target: float) -> list[Row]:
    """Return the lines of the comparison: success, the cost of training, and the cost of reaching `target`."""
    to = f"to {percent(target)}"
    return [
        Row("success_before", f"{HELD_OUT}, before, %", lambda run: run.success_before, 100),
        Row("success", f"{HELD_OUT}, after, %", lambda run: run.success, 100),
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
    """Return the explanation of the target's rows: what they measure, where the target comes from (`named`: the user
    gave it), and which time they count."""
    source = "as asked for" if named else "the highest multiple of 5 % that every run reached; --target names another"
    return (
        f"to {percent(target)}: until the first held-out evaluation (greedy) with that success, {source}. "
        "The seconds are wall time since the first training group, evaluations and pauses included; "
        "`training, s` leaves evaluations and pauses out."
    )


def group_runs(results: Sequence[RunResult]) -> list[Group]:
    """Return the runs grouped by method, in the order of the first run of each method."""
    methods: list[list[RunResult]] = []
    for result in results:
        same = next((runs for runs in methods if runs[0].settings == result.settings), None)
        methods.append([result]) if same is None else same.append(result)
    return [Group(label=label, runs=runs) for label, runs in zip(_labels(methods), methods, strict=True)]


def differing_settings(groups: Sequence[Group]) -> dict[str, list[Any]]:
    """Return the settings that are not the same in all groups: dotted name -> value in each group."""
    return _differing([group.runs for group in groups])


def common_target(results: Sequence[RunResult]) -> float:
    """Return the highest multiple of 5 % that every run reached at some time; 0 if a run has no evaluation."""
    best = min(max((point.success for point in result.curve), default=0.0) for result in results)
    return min(floor(best / TARGET_STEP + 1e-9) * TARGET_STEP, best)  # 0.05 has no exact multiples: 12 are above 0.6


def _to_target(target: float, cost: str, label: str) -> Row:
    def value(run: RunResult) -> float | None:
        point = run.reached(target)
        return None if point is None else float(getattr(point, cost))

    return Row(f"target_{cost}", label, value, at_start=lambda run: run.reached_before_training(target))


def _labels(methods: list[list[RunResult]]) -> list[str]:
    """Return a label for each method: the folder's name if it has one run, otherwise the name of the recipe.

    If two labels are the same, append the settings in which the methods differ or, if these are more than
    `MOST_SETTINGS_IN_LABEL`, number the labels.
    """
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
