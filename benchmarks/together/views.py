"""The table and figures of `recipes/astraflow`, from the raw results of `benchmarks.together`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from benchmarks.modes.report import paired, shown_ratio
from benchmarks.raw_results import RawResults
from benchmarks.together.run import APART, APART_SYNCHRONOUS, TOGETHER, Timed


def table(file: Path) -> str:
    """Return a table with one row per way: medians over the repetitions."""
    lines = ["| way | s per train step of both policies | engine |", "|---|---|---|"]
    for way, runs in sorted(_by_way(file).items()):
        seconds = median(one.seconds_per_train_step for one in runs)
        engine = f"{median(one.engine_utilisation for one in runs):.0%}".replace("%", " %")
        lines.append(f"| {way} | {seconds:.2f} | {engine} |")
    return "\n".join(lines)


def _by_way(file: Path) -> dict[str, list[Timed]]:
    return paired(RawResults(file, Timed), "way")


def _ratio(slower: str) -> Callable[[Path], str]:
    """Return a view of how many times longer a train step takes than together."""

    def shown(file: Path) -> str:
        runs = _by_way(file)
        return shown_ratio(runs[slower], runs[TOGETHER], "seconds_per_train_step")

    return shown


VIEWS: Mapping[str, Callable[[Path], str]] = {
    "table": table,
    "ratio": _ratio(APART),
    "ratio_to_synchronous": _ratio(APART_SYNCHRONOUS),
    "repetitions": lambda file: str(len(_by_way(file)[TOGETHER])),
}
