"""Tables in Markdown for recipes/dart/README.md: results per variant, and the goals with whether each was reached."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from benchmarks.locks.run import Result
from benchmarks.locks.statistics import Interval, compare
from benchmarks.locks.variants import BASELINE

Report = Mapping[str, Mapping[str, Interval]]
"""Variant -> figure -> mean with its 95 % interval."""
SUCCESSES = {
    "hard": "success_hard",
    "medium": "success_medium",
    "easy": "success_easy",
    "all": "success_all",
    "all, gain": "success_all_gain",
}
"""Column -> figure, shown in percent or points."""
RATIOS = {
    "area": "area_ratio_to_grpo",
    "rollouts per group": "group_size_ratio",
    "rollouts per trained group": "rollouts_ratio",
    "turns per rollout": "turns_ratio",
}
"""Column -> figure, a ratio to plain GRPO."""


class Goal(Struct, frozen=True, kw_only=True):
    """A result that DART reports, as a bound on a figure of one variant."""

    claim: str
    variant: str
    figure: str
    bound: float
    side: Literal["at least", "at most"] = "at least"

    def verdict(self, interval: Interval) -> str:
        """Return `yes` if the whole interval is on the goal's side of the bound, `on average` if only its mean is."""
        sign = 1 if self.side == "at least" else -1
        low, mean, _ = sorted(sign * value for value in interval)
        if low >= sign * self.bound:
            return "yes"
        return "on average" if mean >= sign * self.bound else "no"


GOALS = (
    Goal(
        claim="`success_pool`: success on hard locks ≥ 40 %", variant="success_pool", figure="success_hard", bound=0.4
    ),
    Goal(claim="`all`: success on hard locks ≥ 40 %", variant="all", figure="success_hard", bound=0.4),
    Goal(
        claim="`success_pool`: more success on hard locks than `grpo_sft`",
        variant="success_pool",
        figure="success_hard_gain_over_grpo_sft",
        bound=0,
    ),
    Goal(
        claim="`success_pool`: more success on all locks than `grpo_sft`",
        variant="success_pool",
        figure="success_all_gain_over_grpo_sft",
        bound=0,
    ),
    Goal(
        claim="`dynamic_rollouts`: rollouts per group ≤ 0.7 x plain GRPO",
        variant="dynamic_rollouts",
        figure="group_size_ratio",
        bound=0.7,
        side="at most",
    ),
    Goal(
        claim="`dynamic_rollouts`: rollouts per trained group ≤ 0.7 x plain GRPO",
        variant="dynamic_rollouts",
        figure="rollouts_ratio",
        bound=0.7,
        side="at most",
    ),
    Goal(
        claim="`dynamic_rollouts`: no loss of success on all locks",
        variant="dynamic_rollouts",
        figure="success_all_gain",
        bound=0,
    ),
    Goal(
        claim="`dynamic_length`: turns per rollout ≤ 0.6 x plain GRPO",
        variant="dynamic_length",
        figure="turns_ratio",
        bound=0.6,
        side="at most",
    ),
    Goal(
        claim="`dynamic_length`: no loss of success on all locks",
        variant="dynamic_length",
        figure="success_all_gain",
        bound=0,
    ),
    Goal(claim="`all`: area ≥ 1.5 x plain GRPO", variant="all", figure="area_ratio_to_grpo", bound=1.5),
    Goal(
        claim="`all_but_entropy`: success on hard locks ≥ 40 %",
        variant="all_but_entropy",
        figure="success_hard",
        bound=0.4,
    ),
    Goal(
        claim="`all_but_entropy`: area ≥ 1.5 x plain GRPO",
        variant="all_but_entropy",
        figure="area_ratio_to_grpo",
        bound=1.5,
    ),
)


def make_report(results: Mapping[tuple[str, int], Result], names: list[str], seeds: list[int]) -> Report:
    """Compare every variant with plain GRPO, and `success_pool` with `grpo_sft`; `results` by variant and seed."""

    def of(name: str) -> list[Result]:
        return [results[name, seed] for seed in seeds]

    report = {name: compare(of(name), of(BASELINE)) for name in names}
    if {"success_pool", "grpo_sft"} <= set(names):
        against = compare(of("success_pool"), of("grpo_sft"))
        gains = {f"{key}_over_grpo_sft": value for key, value in against.items() if key.endswith("_gain")}
        report["success_pool"] |= gains
    return report


def table(report: Report) -> str:
    """Return a table with one row per variant: mean and 95 % interval; success in percent, gains in points."""
    lines = [f"| variant | {' | '.join([*SUCCESSES, *RATIOS])} |", "|---" * (len(SUCCESSES) + len(RATIOS) + 1) + "|"]
    for name, values in report.items():
        cells = [percent(values[figure]) for figure in SUCCESSES.values()]
        cells += [ratio(values[figure]) for figure in RATIOS.values()]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def goals_table(reports: Mapping[str, Report]) -> str:
    """Return a table with one row per goal and two columns per condition: the figure, and whether it was reached."""
    lines = [
        f"| goal | {' | '.join(f'{condition} | reached' for condition in reports)} |",
        "|---" * (1 + 2 * len(reports)) + "|",
    ]
    for goal in GOALS:
        cells = [goal.claim]
        for report in reports.values():
            interval = report.get(goal.variant, {}).get(goal.figure)
            cells += ["–", "–"] if interval is None else [_shown(goal.figure, interval), goal.verdict(interval)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def percent(interval: Interval) -> str:
    mean, low, high = (round(100 * value) for value in interval)
    return f"{mean} ({low} to {high})".replace("-", "−")


def ratio(interval: Interval) -> str:
    mean, low, high = interval
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def _shown(figure: str, interval: Interval) -> str:
    return percent(interval) if figure.startswith("success") else ratio(interval)
