"""The tables and figures of schedules, from raw results of the parts `modes`, `april` and `rollart`."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.modes.figures import Figures
from benchmarks.modes.modes import APRIL, COUPLED, DECOUPLED, ONE_STEP_OFF, ONE_VERSION, ROLLART
from benchmarks.modes.report import medians, paired, shown_ratio
from benchmarks.raw_results import RawResults


def by_mode(file: Path) -> dict[str, list[Figures]]:
    """Return the runs of each mode; those at the same index are from the same repetition."""
    return paired(RawResults(file, Figures), "mode")


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


def _ratio(ours: str, other: str, figure: str) -> Callable[[Path], str]:
    """Return a view of the ratio of two modes: median over the repetitions, lowest to highest."""

    def shown(file: Path) -> str:
        runs = by_mode(file)
        return shown_ratio(runs[ours], runs[other], figure)

    return shown


def _times_as_fast(ours: str, other: str) -> Callable[[Path], str]:
    return _ratio(other, ours, "seconds_to_train_steps")


def _tokens_per_second(mode: str) -> Callable[[Path], str]:
    return lambda file: f"{medians(by_mode(file)[mode])['generated_tokens_per_second']:,.0f}"


VIEWS: dict[str, Callable[[Path], str]] = {
    "table": table,
    "throughput_ratio": _ratio(DECOUPLED, COUPLED, "actions_per_minute"),
    "environment_ratio": _ratio(DECOUPLED, COUPLED, "environment_utilisation"),
    "engine_ratio": _ratio(DECOUPLED, COUPLED, "engine_utilisation"),
    "april_ratio": _ratio(APRIL, COUPLED, "generated_tokens_per_second"),
    "rollart_ratio": _times_as_fast(ROLLART, COUPLED),
    "rollart_ratio_to_one_step_off": _times_as_fast(ROLLART, ONE_STEP_OFF),
    "lag_ratio": _times_as_fast(ONE_VERSION, COUPLED),
    "lag_ratio_to_one_step_off": _times_as_fast(ONE_VERSION, ONE_STEP_OFF),
    "redundancy_ratio": _times_as_fast(ROLLART, ONE_VERSION),
    "april_tokens_per_second": _tokens_per_second(APRIL),
    "coupled_tokens_per_second": _tokens_per_second(COUPLED),
    "repetitions": lambda file: str(len(next(iter(by_mode(file).values())))),
}
