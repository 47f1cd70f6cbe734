"""Every arm against the synchronous one, paired by seed."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from msgspec import Struct

from benchmarks.lag.arms import SYNCHRONOUS, Arm
from benchmarks.lag.run import Learned
from quartet.report.comparison.intervals import Interval, interval

LAST_TRAIN_STEPS = 10
"""Success of a run is its mean over the policies of so many train steps, the last ones."""
MARGIN = 0.03
"""Learning is unharmed when the whole interval of the difference lies within plus and minus this."""
MIN_LAG_SHARE = 0.7
"""Of the bound; with a smaller mean lag nothing is shown."""


class Line(Struct, frozen=True, kw_only=True):
    """One arm. Successes and differences are shares, not percent."""

    max_lag: int
    objective: str
    mean_lag: float
    """Of trained trajectories, in versions."""
    success: Interval
    difference: Interval | None
    """To the synchronous arm, at the end; None for itself."""
    whole_difference: Interval | None
    """The same for the mean over all train steps."""
    unharmed: bool | None
    """Whether the difference lies within the margin; None for the synchronous arm, and where the lag is too small."""


def make_report(runs: Mapping[str, Sequence[Learned]], arms: Mapping[str, Arm]) -> dict[str, Line]:
    """`runs` hold one entry per seed, the same seeds in the same order for every arm."""
    return {name: _line(arms[name], of_arm, runs[SYNCHRONOUS], name == SYNCHRONOUS) for name, of_arm in runs.items()}


def _line(arm: Arm, runs: Sequence[Learned], synchronous: Sequence[Learned], itself: bool) -> Line:
    lag = mean_lag(runs)
    pairs = list(zip(runs, synchronous, strict=True))
    difference = interval([success(run) - success(other) for run, other in pairs])
    return Line(
        max_lag=arm.max_lag,
        objective=arm.objective,
        mean_lag=lag,
        success=interval([success(run) for run in runs]),
        difference=None if itself else difference,
        whole_difference=None if itself else interval([fmean(run.curve) - fmean(other.curve) for run, other in pairs]),
        unharmed=None if itself or lag < MIN_LAG_SHARE * arm.max_lag else within_margin(difference),
    )


def success(run: Learned) -> float:
    """At the end of a run."""
    return fmean(run.curve[-LAST_TRAIN_STEPS:])


def mean_lag(runs: Sequence[Learned]) -> float:
    """Over all trained trajectories of all runs."""
    counts = [(lag, count) for run in runs for lag, count in run.lag_histogram.items()]
    return sum(lag * count for lag, count in counts) / sum(count for _, count in counts)


def within_margin(difference: Interval) -> bool:
    """Whether the whole interval is; an interval of one value has no bounds and shows nothing."""
    if difference.low is None or difference.high is None:
        return False
    return difference.low >= -MARGIN and difference.high <= MARGIN


def table(report: Mapping[str, Line]) -> str:
    """In Markdown, as it stands in docs/performance.md: percent and points."""
    lines = [
        "| `max_lag` | objective | mean trained lag | success | difference | of the whole run | unharmed |",
        f"|{'---|' * 7}",
    ]
    for line in report.values():
        verdict = {None: "–", True: "yes", False: "not shown"}[line.unharmed]
        cells = (line.max_lag, line.objective, f"{line.mean_lag:.2f}", f"{100 * line.success.mean:.1f} %")
        differences = (_points(line.difference), _points(line.whole_difference))
        lines.append(f"| {' | '.join(map(str, (*cells, *differences, verdict)))} |")
    return "\n".join(lines)


def _points(difference: Interval | None) -> str:
    if difference is None or difference.low is None or difference.high is None:
        return "–"
    low, high = (f"{100 * value:+.1f}" for value in (difference.low, difference.high))
    return f"{100 * difference.mean:+.1f} ({low} to {high})".replace("-", "−")
