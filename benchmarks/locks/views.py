"""Tables of `recipes/dart/README.md` from the raw results of `benchmarks/curation.py`."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.locks.report import Report, goals_table, make_report, table
from benchmarks.locks.run import Result
from benchmarks.locks.variants import BASELINE, CONDITIONS, VARIANTS
from benchmarks.raw_results import RawResults


def report_of(file: Path, condition: str) -> Report:
    """Variants in their usual order, over the seeds that every variant of the condition has."""
    runs = {
        (key["variant"], key["seed"]): result
        for key, result in RawResults(file, Result).read()
        if key["condition"] == condition
    }
    names = [name for name in VARIANTS if any(variant == name for variant, _ in runs)]
    seeds = sorted({seed for _, seed in runs})
    whole = [seed for seed in seeds if all((name, seed) in runs for name in names)]
    return make_report(runs, names, whole) if BASELINE in names and len(whole) > 1 else {}


def goals(file: Path) -> str:
    reports = {condition: report_of(file, condition) for condition in CONDITIONS}
    return goals_table({condition: report for condition, report in reports.items() if report})


def _variants(condition: str) -> Callable[[Path], str]:
    return lambda file: table(report_of(file, condition))


VIEWS = {"goals": goals, **{condition: _variants(condition) for condition in CONDITIONS}}
