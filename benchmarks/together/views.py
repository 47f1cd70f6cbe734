"""The table and figures of `recipes/astraflow`, from the raw results of `benchmarks.together`."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.raw_results import RawResults
from benchmarks.together.run import APART, APART_SYNCHRONOUS, TOGETHER, Timed


def ratios(slower: Sequence[Timed], faster: Sequence[Timed]) -> list[float]:
    """Return the ratio of seconds per train step within each repetition; entry i of both is of repetition i."""
    return [
        one.seconds_per_train_step / other.seconds_per_train_step for one, other in zip(slower, faster, strict=True)
    ]


def median_ratio(slower: Sequence[Timed], faster: Sequence[Timed]) -> float:
    """Return the median of the ratios."""
    return round(median(ratios(slower, faster)), 3)


def table(file: Path) -> str:
    """Return a table with one row per way: medians over the repetitions."""
    lines = ["| way | s per train step of both policies | engine |", "|---|---|---|"]
    for way, runs in _by_way(file).items():
        seconds = median(one.seconds_per_train_step for one in runs)
        engine = f"{median(one.engine_utilisation for one in runs):.0%}".replace("%", " %")
        lines.append(f"| {way} | {seconds:.2f} | {engine} |")
    return "\n".join(lines)


def _by_way(file: Path) -> dict[str, list[Timed]]:
    runs: defaultdict[str, dict[int, Timed]] = defaultdict(dict)
    for key, result in RawResults(file, Timed).read():
        runs[key["way"]][key["seed"]] = result
    return {way: [runs[way][seed] for seed in sorted(runs[way])] for way in sorted(runs)}


def _ratio(slower: str) -> Callable[[Path], str]:
    def shown(file: Path) -> str:
        runs = _by_way(file)
        found = ratios(runs[slower], runs[TOGETHER])
        return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})"

    return shown


VIEWS: Mapping[str, Callable[[Path], str]] = {
    "table": table,
    "ratio": _ratio(APART),
    "ratio_to_synchronous": _ratio(APART_SYNCHRONOUS),
    "repetitions": lambda file: str(len(_by_way(file)[TOGETHER])),
}
