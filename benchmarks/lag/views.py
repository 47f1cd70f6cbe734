"""The table of learning under lag in `docs/performance.md`, from the raw results of `benchmarks.lag`."""

from collections import defaultdict
from pathlib import Path

from benchmarks.lag.arms import SYNCHRONOUS, Arm
from benchmarks.lag.report import make_report, table
from benchmarks.lag.run import Learned
from benchmarks.raw_results import RawResults


def objectives(file: Path) -> str:
    """Return the table over the seeds that every arm has, with the synchronous arm first."""
    runs: dict[str, dict[int, Learned]] = defaultdict(dict)
    arms: dict[str, Arm] = {}
    for key, result in RawResults(file, Learned).read():
        runs[key["arm"]][key["seed"]] = result
        arms[key["arm"]] = Arm(objective=key["objective"], max_lag=key["max_lag"])
    seeds = sorted(set.intersection(*(set(of_arm) for of_arm in runs.values())))
    ordered = sorted(runs, key=lambda name: name != SYNCHRONOUS)
    return table(make_report({name: [runs[name][seed] for seed in seeds] for name in ordered}, arms))


VIEWS = {"objectives": objectives}
