"""Comparison of every arm with the synchronous arm, paired by seed."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from msgspec import Struct

from benchmarks.lag.arms import SYNCHRONOUS, Arm
from benchmarks.lag.run import Learned
from quartet.report.comparison.intervals import Interval, interval

LAST_TRAIN_STEPS = 10
"""Number of last train steps over whose policies the success of a run is averaged."""
MARGIN = 0.03
"""Margin of the difference in success. Learning counts as unharmed if the whole interval is within plus and minus this
margin."""
MIN_LAG_SHARE = 0.7
"""Minimum mean lag, as a share of the bound; with a smaller lag the run shows nothing."""


class Line(Struct, frozen=True, kw_only=True):
    """Results of one arm. Successes and differences are shares, not percent."""

    max_lag: int
    objective: str
    mean_lag: float
    """Mean lag of trained trajectories, in train steps."""
    success: Interval
    difference: Interval | None
    """Difference in final success to the synchronous arm; None for the synchronous arm itself."""
    whole_difference: Interval | None
    """Difference in the success averaged over all train steps; None for the synchronous arm."""
    unharmed: bool | None
    """True if the difference is within the margin; None for the synchronous arm, and if the mean lag is too small."""


def make_report(runs: Mapping[str, Sequence[Learned]], arms: Mapping[str, Arm]) -> dict[str, Line]:
    """Return the results by arm. `runs` has one entry per seed, the same seeds in the same order for every arm."""
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
    """Return the success at the end of a run."""
    return fmean(run.curve[-LAST_TRAIN_STEPS:])


def mean_lag(runs: Sequence[Learned]) -> float:
    """Return the mean lag over all trained trajectories of all runs."""
    counts = [(lag, count) for run in runs for lag, count in run.lag_histogram.items()]
    return sum(lag * count for lag, count in counts) / sum(count for _, count in counts)


def within_margin(difference: Interval) -> bool:
    """Return whether the whole interval is within the margin; False for an interval of one value, without bounds."""
    if difference.low is None or difference.high is None:
        return False
    return difference.low >= -MARGIN and difference.high <= MARGIN


def table(report: Mapping[str, Line]) -> str:
    """Return the table of docs/performance.md in Markdown, in percent and points."""
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
