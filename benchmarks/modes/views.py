"""The tables and figures of schedules, from raw results of the parts `modes`, `april` and `rollart`."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.modes.figures import Figures
from benchmarks.modes.modes import APRIL, COUPLED, DECOUPLED, ONE_STEP_OFF, ROLLART
from benchmarks.modes.report import medians, ratios
from benchmarks.raw_results import RawResults


def by_mode(file: Path) -> dict[str, list[Figures]]:
    """Return the runs of each mode in the order of their seeds, over the seeds that every mode has.

    So runs at the same index are from the same repetition.
    """
    runs: dict[str, dict[int, Figures]] = defaultdict(dict)
    for key, result in RawResults(file, Figures).read():
        runs[key["mode"]][key["seed"]] = result
    seeds = sorted(set.intersection(*(set(of_mode) for of_mode in runs.values())))
    return {mode: [of_mode[seed] for seed in seeds] for mode, of_mode in runs.items()}


def table(file: Path) -> str:
    """Return a table with one row per mode: medians over the repetitions."""
    lines = [
        "| mode | actions/min | environments | engine | trainer | s to the last train step | mean lag |",
        "|---" * 7 + "|",
    ]
    for mode, runs in by_mode(file).items():
        found = medians(runs)
        lags = {int(lag): count for lag, count in found["lag_histogram"].items()}
        mean_lag = sum(lag * count for lag, count in lags.items()) / max(1, sum(lags.values()))
        shares = (
            f"{found[f'{name}_utilisation']:.0%}".replace("%", " %") for name in ("environment", "engine", "trainer")
        )
        cells = (mode, f"{found['actions_per_minute']:,.0f}", *shares, f"{found['seconds_to_train_steps']:.1f}")
        lines.append(f"| {' | '.join(cells)} | {mean_lag:.2f} |")
    return "\n".join(lines)


def _ratio(ours: str, figure: str) -> Callable[[Path], str]:
    """Return a view of the ratio to the coupled mode: median over the repetitions, lowest to highest."""

    def shown(file: Path) -> str:
        runs = by_mode(file)
        found = ratios(runs[ours], runs[COUPLED], figure)
        return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})"

    return shown


def _times_as_fast(ours: str, other: str) -> Callable[[Path], str]:
    """Return a view of how many times longer the other mode takes to the last train step."""

    def shown(file: Path) -> str:
        runs = by_mode(file)
        found = ratios(runs[other], runs[ours], "seconds_to_train_steps")
        return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})"

    return shown


def _tokens_per_second(mode: str) -> Callable[[Path], str]:
    return lambda file: f"{medians(by_mode(file)[mode])['generated_tokens_per_second']:,.0f}"


VIEWS: dict[str, Callable[[Path], str]] = {
    "table": table,
    "throughput_ratio": _ratio(DECOUPLED, "actions_per_minute"),
    "environment_ratio": _ratio(DECOUPLED, "environment_utilisation"),
    "engine_ratio": _ratio(DECOUPLED, "engine_utilisation"),
    "april_ratio": _ratio(APRIL, "generated_tokens_per_second"),
    "rollart_ratio": _times_as_fast(ROLLART, COUPLED),
    "rollart_ratio_to_one_step_off": _times_as_fast(ROLLART, ONE_STEP_OFF),
    "lag_ratio": _times_as_fast("one version", COUPLED),
    "lag_ratio_to_one_step_off": _times_as_fast("one version", ONE_STEP_OFF),
    "redundancy_ratio": _times_as_fast(ROLLART, "one version"),
    "april_tokens_per_second": _tokens_per_second(APRIL),
    "coupled_tokens_per_second": _tokens_per_second(COUPLED),
    "repetitions": lambda file: str(len(next(iter(by_mode(file).values())))),
}
