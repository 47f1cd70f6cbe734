"""Figures of a report, drawn by one function each and listed in `FIGURES`.

Each method has a colour, and each seed is a line. Success against tokens also has the mean over seeds and its interval.
"""

from collections.abc import Callable, Sequence
from math import isnan
from statistics import fmean
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quartet.report.comparison.mean_curve import mean_curve
from quartet.report.paper.drawing import BEFORE, WIDTH_INCHES, Method, curves, legend, line, mean_rate, smooth

MINUTES = "minutes since training began"
"""Label of the axis of `ReportedRun.minutes`. They are not the training clock, whose history no run records."""


class Drawn(NamedTuple):
    """Figure with its caption; `draw` fills an empty figure."""

    caption: str
    draw: Callable[[Figure, Sequence[Method]], None]


def _success(figure: Figure, shown: Sequence[Method]) -> None:
    figure.set_size_inches(WIDTH_INCHES, 2.8)
    over_rollouts, over_tokens = figure.subplots(1, 2, sharey=True)
    for method in shown:
        for run in method.runs:
            curve, training = run.result.curve, run.series["rollout/success"]
            line(over_rollouts, [p.x for p in training], smooth(training), method, alpha=0.25, scale=100)
            success = [point.success for point in curve]
            line(over_rollouts, [point.rollouts for point in curve], success, method, marker="o", scale=100)
        _success_per_token(over_tokens, method)
    over_rollouts.set(xlabel="training rollouts", ylabel="success, %", ylim=(0, 102))
    over_tokens.set(xlabel="thousand tokens generated")
    legend(over_tokens, shown)


def _success_per_token(axes: Axes, method: Method) -> None:
    """Draw a line per seed; from two seeds on, draw the seeds paler, with their mean and its 95 % interval."""
    seeds = [[(p.generated_tokens / 1e3, p.success) for p in run.result.curve] for run in method.runs]
    several = len(seeds) > 1
    for seed in seeds:
        x, y = [x for x, _ in seed], [y for _, y in seed]
        line(axes, x, y, method, marker="o", scale=100, alpha=0.25 if several else 0.9)
    if several:
        mean = mean_curve(seeds)
        line(axes, [x for x, _ in mean], [y.mean for _, y in mean], method, scale=100)
        bounds = [(100 * max(0, y.low or 0), 100 * min(1, 1 if y.high is None else y.high)) for _, y in mean]
        low, high = [low for low, _ in bounds], [high for _, high in bounds]
        axes.fill_between([x for x, _ in mean], low, high, color=method.colour, alpha=0.15, linewidth=0)


def _tasks(figure: Figure, shown: Sequence[Method]) -> None:
    families = sorted({name for method in shown for run in method.runs for name in run.summary["per_task"]})
    after = {name: [mean_rate(method, name, "after") for method in shown] for name in families}
    families.sort(key=lambda name: fmean([rate for rate in after[name] if not isnan(rate)] or [0.0]))
    figure.set_size_inches(WIDTH_INCHES, 1.1 + 0.17 * len(families))
    axes, places = figure.subplots(), range(len(families))
    everyone = Method("before", BEFORE, [run for method in shown for run in method.runs])
    before = [mean_rate(everyone, name, "before") for name in families]
    axes.scatter(before, places, color=BEFORE, s=16, label="before", zorder=2)
    for number, method in enumerate(shown):
        rates = [after[name][number] for name in families]
        axes.scatter(
            rates, places, color=method.colour, s=16, marker="os^Dv<>"[number % 7], zorder=3, label=method.label
        )
    axes.set_yticks(list(places), families)
    axes.set(xlabel="success on held-out tasks, %", xlim=(-3, 103))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=1 + len(shown))


_LEARNING = {
    "train/reward_mean": "reward",
    "train/entropy_nats": "entropy, nats",
    "train/gradient_norm": "gradient norm",
    "train/gap_k1_nats": "engine − trainer, nats",
    "train/lag_mean_versions": "lag, train steps",
}


def _learning(figure: Figure, shown: Sequence[Method]) -> None:
    figure.set_size_inches(WIDTH_INCHES, 3.6)
    *panels, rest = figure.subplots(2, 3).ravel()
    for axes, (name, label) in zip(panels, _LEARNING.items(), strict=True):
        curves(axes, shown, name)
        axes.set_title(label, loc="left")
    for axes in panels[2:]:
        axes.set_xlabel(MINUTES)
    rest.set_axis_off()
    legend(rest, shown, loc="center left")


def _speed(figure: Figure, shown: Sequence[Method]) -> None:
    figure.set_size_inches(WIDTH_INCHES, 2.2)
    rollouts, tokens = figure.subplots(1, 2)
    for method in shown:
        for run in method.runs:
            points = run.series["rollout/reward"]
            line(rollouts, [run.minutes(p) for p in points], [p.count / run.slot_seconds for p in points], method)
    curves(tokens, shown, "engine/generated_tokens_per_second")
    rollouts.set_title("training rollouts per second", loc="left")
    tokens.set_title("tokens generated per second", loc="left")
    for axes in (rollouts, tokens):
        axes.set(xlabel=MINUTES, ylim=(0, None))
    legend(tokens, shown, loc="lower right")


def _waiting(figure: Figure, shown: Sequence[Method]) -> None:
    modules = sorted({name for method in shown for run in method.runs for name in run.summary["share_waiting"]})
    figure.set_size_inches(WIDTH_INCHES, 0.9 + 0.25 * len(modules) * max(1.0, 0.6 * len(shown)))
    axes, height = figure.subplots(), 0.8 / len(shown)
    for number, method in enumerate(shown):
        shares = [100 * fmean(run.summary["share_waiting"].get(name, 0.0) for run in method.runs) for name in modules]
        places = [place + (number - (len(shown) - 1) / 2) * height for place in range(len(modules))]
        axes.barh(places, shares, height=0.9 * height, color=method.colour, label=method.label)
    axes.set_yticks(range(len(modules)), modules)
    axes.set(xlabel="share of its time that a module waited, %", xlim=(0, 100))
    axes.legend(loc="lower right")


FIGURES = {
    "success": Drawn(
        "Success on held-out tasks (dots). Left, paler: training rollouts on the tasks that the sampler chose. "
        "Right, from two seeds on: the mean over seeds with its 95 % interval, where all seeds have results.",
        _success,
    ),
    "tasks": Drawn("Success per task family, before and after training; means over seeds.", _tasks),
    "learning": Drawn(
        "Metrics of the train steps. The time includes evaluations and the pauses of resumed runs.", _learning
    ),
    "speed": Drawn("Speed while training and evaluating. The time includes the pauses of resumed runs.", _speed),
    "waiting": Drawn("Share of time that each module waited; means over seeds.", _waiting),
}
"""Figures by file name."""
