"""What is it worth that nobody waits? Rollout-wise scheduling with a bound against every other schedule.

Latencies of a desktop are drawn from `benchmarks/workloads`, a policy speaks with a long tail of response
lengths; engine, trainer, ledger and all else are the real ones, started as `quartet train` starts them. Parts:

- modes: first the sessions with which the coupled mode (batch-synchronous) is fastest, then every mode with as many,
  taking turns within every repetition;
- sessions: the fewest with which rollout-wise still does as many actions as the coupled mode at its best;
- april: tokens per second on long single turns without latencies, against the coupled mode;
- learning: whether a policy learns as well from trajectories that are as old as the bound allows, on the text
  environment `locks` and without latencies (`benchmarks/lag`).
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
import psutil

from benchmarks.lag.compare import compare_learning
from benchmarks.modes.figures import Figures
from benchmarks.modes.modes import APRIL, COUPLED, DECOUPLED, ROLLOUTS_PER_GROUP, Overrides, modes, recipe, single_turn
from benchmarks.modes.report import median_ratio, medians
from benchmarks.modes.run import run
from benchmarks.modes.start import ACTING, REASONING, make_start
from benchmarks.raw_results import RawResults, results_option
from quartet.env.workload import read_workload

WORKLOADS = Path(__file__).parent / "workloads"
INSTANT = "step_0_ms"
SEARCH_SEEDS = (101, 102)
"""Of the runs by which numbers of sessions are chosen: not those of the comparison."""
PARTS = ("modes", "sessions", "april", "learning")


@click.command()
@click.option("--parts", default=",".join(PARTS), show_default=True)
@click.option("--workload", default="desktop", show_default=True, help="File of benchmarks/workloads, or a path.")
@click.option("--time-scale", type=float, help="Seconds here per second there, instead of what the workload says.")
@click.option("--groups", default=4, show_default=True, help="Groups of 8 in a train step.")
@click.option("--april-groups", default=4, show_default=True, help="The same in the part april.")
@click.option("--max-lag", default=2, show_default=True, help="Bound of rollout-wise, task-wise and APRIL.")
@click.option("--train-steps", default=4, show_default=True, help="Of each timed run; the first is not timed.")
@click.option("--repetitions", default=5, show_default=True)
@click.option("--learning-lags", default="4,2,1", show_default=True, help="Bounds in the part learning.")
@click.option("--learning-seeds", default="40-51", show_default=True, help="First and last seed of its runs.")
@click.option(
    "--learning-set",
    "learning_options",
    multiple=True,
    metavar="SETTING=VALUE",
    help="Instead of the setting's; repeat.",
)
@click.option(
    "--policies",
    default="runs/benchmarks/long-tailed",
    show_default=True,
    help="Folder of the policies, made when missing.",
)
@results_option
@click.option("--json", "as_json", is_flag=True)
def main(
    parts: str,
    workload: str,
    time_scale: float | None,
    groups: int,
    april_groups: int,
    max_lag: int,
    train_steps: int,
    repetitions: int,
    learning_lags: str,
    learning_seeds: str,
    learning_options: tuple[str, ...],
    policies: str,
    results: Path,
    as_json: bool,
) -> None:
    """Compare schedules."""
    bench = Bench(Path(policies).resolve(), results, max_lag=max_lag, train_steps=train_steps)
    file = next(path for path in (WORKLOADS / f"{workload}.json", Path(workload)) if path.is_file())
    result: dict[str, Any] = dict.fromkeys(
        (
            *("throughput_ratio", "sessions_ratio", "environment_utilisation_ratio", "engine_utilisation_ratio"),
            *("april_ratio", "modes", "learning"),
        )
    )
    wanted = parts.split(",")
    if {"modes", "sessions"} & set(wanted):
        with tempfile.TemporaryDirectory() as folder:
            scaled = rescale(file, time_scale, Path(folder)) if time_scale else file
            result |= bench.on_workload(scaled, groups, repetitions, wanted)
    if "april" in wanted:
        result |= bench.april(april_groups, repetitions)
    if "learning" in wanted:
        first, _, last = learning_seeds.partition("-")
        seeds, lags = range(int(first), int(last or first) + 1), list(map(int, learning_lags.split(",")))
        result |= compare_learning(lags, seeds, learning_options, results / "lag.jsonl", click.echo)
    result["load_average_1min"] = round(psutil.getloadavg()[0], 2)
    click.echo(json.dumps(result) if as_json else "\n".join(f"{key:32} {value}" for key, value in result.items()))


def rescale(workload: Path, time_scale: float, folder: Path) -> Path:
    """The same latencies at another scale, as a file of `folder`."""
    scaled = folder / workload.name
    scaled.write_bytes(msgspec.json.encode(msgspec.structs.replace(read_workload(workload), time_scale=time_scale)))
    return scaled


class Bench:
    """Runs of two policies, made in `folder`: one acts turn by turn, one reasons at length in a single turn. Every run
    has a seed of its own, the same one for all modes of a repetition. Raw results of the comparisons go to the
    folder `results`."""

    def __init__(self, folder: Path, results: Path, *, max_lag: int, train_steps: int) -> None:
        self._folder, self._results, self._train_steps = folder, results, train_steps
        self._modes = modes(max_lag)

    def on_workload(self, workload: Path, groups: int, repetitions: int, parts: list[str]) -> dict[str, Any]:
        """The parts that begin with the coupled mode at its best."""
        make_start(self._folder / "acting", ACTING)
        sweep = self.sweep(workload, groups)
        sessions = max(sweep, key=lambda tried: sweep[tried]["actions_per_minute"])
        wanted = sweep[sessions]["actions_per_minute"]
        result = {"sessions": sessions, "coupled_sweep": sweep}
        if "modes" in parts:
            result |= self.compare(workload, groups, sessions, repetitions)
            wanted = result["modes"][COUPLED]["actions_per_minute"]
        if "sessions" in parts:
            result |= self.fewest_sessions(workload, groups, sessions, wanted)
        return result

    def sweep(self, workload: Path, groups: int) -> dict[int, dict[str, Any]]:
        """The coupled mode by sessions. It has continuous batching, and a rollout that ends gives its session to the
        next one; more sessions than rollouts in a batch it cannot use."""
        rollouts = groups * ROLLOUTS_PER_GROUP
        tried = sorted({max(1, rollouts * share // 4) for share in (2, 3, 4)})
        return {sessions: self._searched(COUPLED, workload, groups, sessions) for sessions in tried}

    def compare(self, workload: Path, groups: int, sessions: int, repetitions: int) -> dict[str, Any]:
        """All modes at equal sessions, engine and batch; ratios are medians of those within a repetition."""
        runs: dict[str, list[Figures]] = {name: [] for name in self._modes}
        names, raw = list(self._modes), RawResults(self._results / "modes.jsonl", Figures)
        raw.begin()
        for repetition in range(repetitions):
            for turn in range(len(names)):  # each goes first in some repetition
                name, seed = names[(turn + repetition) % len(names)], 1 + repetition
                runs[name].append(self._run(name, workload, groups, sessions, seed=seed))
                raw.add({"mode": name, "sessions": sessions, "seed": seed}, runs[name][-1])
        return {
            "throughput_ratio": median_ratio(runs[DECOUPLED], runs[COUPLED], "actions_per_minute"),
            "environment_utilisation_ratio": median_ratio(runs[DECOUPLED], runs[COUPLED], "environment_utilisation"),
            "engine_utilisation_ratio": median_ratio(runs[DECOUPLED], runs[COUPLED], "engine_utilisation"),
            "modes": {name: medians(of_mode) for name, of_mode in runs.items()},
        }

    def fewest_sessions(self, workload: Path, groups: int, sessions: int, wanted: float) -> dict[str, Any]:
        """The fewest with which rollout-wise does as many actions per minute as the coupled mode with `sessions`; the
        ratio is None when it does not even with as many."""
        tried: dict[int, float] = {}

        def enough(count: int) -> bool:
            tried[count] = self._searched(DECOUPLED, workload, groups, count)["actions_per_minute"]
            return tried[count] >= wanted

        found = fewest(enough, max(1, sessions // 8), sessions)
        ratio = None if found is None else round(sessions / found, 3)
        return {"sessions_ratio": ratio, "decoupled_sweep": dict(sorted(tried.items()))}

    def april(self, groups: int, repetitions: int) -> dict[str, Any]:
        """Generated tokens per second of APRIL over those of the coupled mode, on single turns."""
        sessions = 2 * groups * ROLLOUTS_PER_GROUP
        policy = make_start(self._folder / "reasoning", REASONING)
        runs: dict[str, list[Figures]] = {COUPLED: [], APRIL: []}
        raw = RawResults(self._results / "april.jsonl", Figures)
        raw.begin()
        for repetition in range(repetitions):
            for name in list(runs) if repetition % 2 else reversed(list(runs)):
                file, load, seed = WORKLOADS / f"{INSTANT}.json", single_turn(policy), 1 + repetition
                runs[name].append(self._run(name, file, groups, sessions, load, seed=seed))
                raw.add({"mode": name, "sessions": sessions, "seed": seed}, runs[name][-1])
        ratio = median_ratio(runs[APRIL], runs[COUPLED], "generated_tokens_per_second")
        return {"april_ratio": ratio, "april_modes": {name: medians(of) for name, of in runs.items()}}

    def _searched(self, mode: str, workload: Path, groups: int, sessions: int) -> dict[str, Any]:
        return medians([self._run(mode, workload, groups, sessions, seed=seed) for seed in SEARCH_SEEDS])

    def _run(self, mode: str, workload: Path, groups: int, sessions: int, *overrides: Overrides, seed: int) -> Figures:
        chosen = recipe(
            self._folder / "acting" / "policy",
            workload,
            self._modes[mode],
            *overrides,
            groups=groups,
            sessions=sessions,
            seed=seed,
        )
        with tempfile.TemporaryDirectory() as folder:
            figures = run(chosen, Path(folder), train_steps=self._train_steps)
        click.echo(
            f"{mode:17} {sessions:3} sessions  {figures.actions_per_minute:6.0f} actions/min  "
            f"{figures.generated_tokens_per_second:6.0f} tokens/s  busy: env {figures.environment_utilisation:4.0%} "
            f"engine {figures.engine_utilisation:4.0%} trainer {figures.trainer_utilisation:4.0%}  "
            f"{figures.seconds_to_train_steps:5.1f} s  lag {figures.lag_histogram}"
        )
        return figures


def fewest(enough: Callable[[int], bool], low: int, high: int) -> int | None:
    """The smallest of `low` to `high` that is enough, by bisection; None when `high`, asked first, is not."""
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


if __name__ == "__main__":
    main()
