"""How much faster are runs whose modules do not wait for each other? Rollout-wise scheduling against other schedules.

With `--env desk`, latencies of a desktop are drawn from `benchmarks/workloads`, and the response lengths of the policy
have a long tail. With `--env desktop`, the environment is the real desktop of `recipes/desktop`, and two modes are
compared. Engine, trainer, ledger and all other modules are the real ones, started as `quartet train` does. Parts:

- modes: find the number of sessions with which the coupled mode (batch-synchronous) is fastest, then run every mode
  with this number, in turn within every repetition;
- sessions: find the smallest of five numbers of sessions with which rollout-wise does as many actions per minute as the
  coupled mode with its best number;
- april: tokens per second on long single turns without latencies, against the coupled mode;
- rollart: the lag and the redundant rollouts of RollArt, against the coupled mode and one step off. It runs only if it
  is named.

What learning loses by lag is measured by `benchmarks.lag`.
"""

import json
import tempfile
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import psutil

from benchmarks.modes.figures import Figures
from benchmarks.modes.modes import (
    APRIL,
    COUPLED,
    DECOUPLED,
    ONE_STEP_OFF,
    ROLLART,
    ROLLART_MODES,
    ROLLOUTS_PER_GROUP,
    modes,
    recipe,
)
from benchmarks.modes.report import median_ratio, medians
from benchmarks.modes.run import run
from benchmarks.modes.start import ACTING, REASONING, make_start
from benchmarks.modes.worlds import Overrides, desktops, pretended, single_turn
from benchmarks.raw_results import RawResults, results_option
from benchmarks.workload import read_workload
from quartet.registry import lookup

WORKLOADS = Path(__file__).parent / "workloads"
INSTANT = "step_0_ms"
SEARCH_SEED = 101
"""Seed of the runs that select the number of sessions; the comparison uses other seeds."""
PARTS = ("modes", "sessions", "april")
ROLLART_PART = "rollart"
"""A part that runs only if it is named."""
RESULTS = (
    "throughput_ratio",
    "sessions_ratio",
    "environment_utilisation_ratio",
    "engine_utilisation_ratio",
    "april_ratio",
    "rollart_ratio",
    "rollart_ratio_to_one_step_off",
    "modes",
)
"""Entries of the JSON object; null if their part did not run."""
OTHERS = [name for name in modes(max_lag=1) if name not in (COUPLED, DECOUPLED)]
DEFAULTS: dict[str, dict[str, Any]] = {
    "desk": {"time_scale": 0.1},
    "desktop": {"parts": "modes", "others": "", "groups": 2},
}
"""Defaults of other options, by environment. At a tenth of its time the simulated desktop is the limit, not two cores.
A rollout on real desktops takes a second of processor time."""


def _set_defaults(context: click.Context, _: click.Parameter, env: str) -> str:
    context.default_map = DEFAULTS[env]
    return env


@click.command()
@click.option(
    "--env",
    type=click.Choice([*DEFAULTS]),
    default="desk",
    show_default=True,
    is_eager=True,
    callback=_set_defaults,
    help="Simulated desktop (desk) or real desktops; for these, other defaults are smaller.",
)
@click.option("--parts", default=",".join(PARTS), show_default=True)
@click.option(
    "--others",
    default=",".join(OTHERS),
    show_default=True,
    help=f"Modes to compare besides {COUPLED} and {DECOUPLED}.",
)
@click.option("--workload", default="desktop", show_default=True, help="File of benchmarks/workloads, or a path.")
@click.option("--time-scale", type=float, help="Measured seconds per simulated second; default for the desk: 0.1.")
@click.option("--groups", default=4, show_default=True, help="Groups of 8 in a train step.")
@click.option("--april-groups", default=4, show_default=True, help="Groups of 8 in a train step of the part april.")
@click.option("--max-lag", default=2, show_default=True, help="Lag bound of rollout-wise, task-wise and APRIL.")
@click.option("--train-steps", default=4, show_default=True, help="Train steps per run; the first is not timed.")
@click.option("--repetitions", default=3, show_default=True)
@click.option("--april-repetitions", default=5, show_default=True, help="Repetitions of the part april.")
@click.option(
    "--policies",
    default="runs/benchmarks/long-tailed",
    show_default=True,
    help="Folder of the policies, made if missing.",
)
@results_option
@click.option("--json", "as_json", is_flag=True)
def main(
    env: str,
    parts: str,
    others: str,
    workload: str,
    time_scale: float | None,
    groups: int,
    april_groups: int,
    max_lag: int,
    train_steps: int,
    repetitions: int,
    april_repetitions: int,
    policies: str,
    results: Path,
    as_json: bool,
) -> None:
    """Compare schedules."""
    compared = [COUPLED, *filter(None, others.split(",")), DECOUPLED]
    bench = Bench(Path(policies).resolve(), results, compared, max_lag=max_lag, train_steps=train_steps)
    result: dict[str, Any] = dict.fromkeys(RESULTS)
    wanted = parts.split(",")
    known = [*PARTS, ROLLART_PART] if env == "desk" else PARTS
    for part in wanted:
        lookup("part", part, dict.fromkeys(known))
    if {"modes", "sessions"} & set(wanted):
        with tempfile.TemporaryDirectory() as folder:
            world = desktops() if env == "desktop" else bench.desk(_workload(workload, time_scale, Path(folder)))
            name = "modes_desktop" if env == "desktop" else "modes"
            result |= bench.on_world(world, groups, repetitions, wanted, name)
    if "april" in wanted:
        result |= bench.april(april_groups, april_repetitions)
    if ROLLART_PART in wanted:
        with tempfile.TemporaryDirectory() as folder:
            world = bench.desk(_workload(workload, time_scale, Path(folder)))
            result |= bench.rollart(world, groups, repetitions)
    result["load_average_1min"] = round(psutil.getloadavg()[0], 2)
    click.echo(json.dumps(result) if as_json else "\n".join(f"{key:32} {value}" for key, value in result.items()))


def _workload(name: str, time_scale: float | None, folder: Path) -> Path:
    file = next(path for path in (WORKLOADS / f"{name}.json", Path(name)) if path.is_file())
    return rescale(file, time_scale, folder) if time_scale else file


def rescale(workload: Path, time_scale: float, folder: Path) -> Path:
    """Write the workload with another time scale into `folder`, and return the file."""
    scaled = folder / workload.name
    scaled.write_bytes(msgspec.json.encode(msgspec.structs.replace(read_workload(workload), time_scale=time_scale)))
    return scaled


class Bench:
    """The experiments; the part `modes` compares the modes `compared`.

    Two policies for the simulated desktop are made in `folder`: one acts turn by turn, the other reasons in one turn.

    All modes of a repetition have the same seed; repetitions have different seeds. Raw results of the comparisons are
    written to the folder `results`.
    """

    def __init__(self, folder: Path, results: Path, compared: Sequence[str], *, max_lag: int, train_steps: int) -> None:
        self._folder, self._results, self._train_steps = folder, results, train_steps
        self._modes, self._compared = modes(max_lag), compared

    def desk(self, workload: Path) -> Overrides:
        """Return the simulated desktop with the latencies of a workload, and make its policy."""
        return pretended(make_start(self._folder / "acting", ACTING), workload)

    def on_world(self, world: Overrides, groups: int, repetitions: int, parts: list[str], name: str) -> dict[str, Any]:
        """Return the results of `modes` and `sessions`, which begin with the best number of sessions of the coupled
        mode. `name` is that of the file of raw results.
        """
        sweep = self.sweep(world, groups)
        sessions = max(sweep, key=lambda tried: sweep[tried]["actions_per_minute"])
        wanted = sweep[sessions]["actions_per_minute"]
        result = {"sessions": sessions, "coupled_sweep": sweep}
        if "modes" in parts:
            result |= self.compare(world, groups, sessions, repetitions, name)
            wanted = result["modes"][COUPLED]["actions_per_minute"]
        if "sessions" in parts:
            result |= self.fewest_sessions(world, groups, sessions, wanted)
        return result

    def sweep(self, world: Overrides, groups: int) -> dict[int, dict[str, Any]]:
        """Return the figures of the coupled mode by number of sessions.

        The coupled mode has continuous batching, and the session of a finished rollout is used by the next one. It
        cannot use more sessions than a batch has rollouts.
        """
        rollouts = groups * ROLLOUTS_PER_GROUP
        tried = sorted({max(1, rollouts * share // 4) for share in (3, 4)})
        return {sessions: self._searched(COUPLED, world, groups, sessions) for sessions in tried}

    def compare(self, world: Overrides, groups: int, sessions: int, repetitions: int, name: str) -> dict[str, Any]:
        """Compare all modes with the same sessions, engine and batch; ratios are medians of ratios per repetition."""
        compared = {mode: lookup("mode", mode, self._modes) for mode in self._compared}
        runs = self._in_turn(compared, world, groups, sessions, repetitions, name)
        return {
            "throughput_ratio": median_ratio(runs[DECOUPLED], runs[COUPLED], "actions_per_minute"),
            "environment_utilisation_ratio": median_ratio(runs[DECOUPLED], runs[COUPLED], "environment_utilisation"),
            "engine_utilisation_ratio": median_ratio(runs[DECOUPLED], runs[COUPLED], "engine_utilisation"),
            "modes": {mode: medians(of_mode) for mode, of_mode in runs.items()},
        }

    def fewest_sessions(self, world: Overrides, groups: int, sessions: int, wanted: float) -> dict[str, Any]:
        """Find the smallest of five numbers of sessions with which rollout-wise does `wanted` actions per minute.

        That is the rate of the coupled mode with `sessions`. The ratio is None if rollout-wise does not reach it with
        this number.
        """
        counts = sorted({max(1, sessions * share // 8) for share in (2, 3, 4, 6, 8)})
        tried: dict[int, float] = {}

        def enough(count: int) -> bool:
            tried[count] = self._searched(DECOUPLED, world, groups, count)["actions_per_minute"]
            return tried[count] >= wanted

        found = bisect_left(counts, True, key=enough)
        ratio = round(sessions / counts[found], 3) if found < len(counts) else None
        return {"sessions_ratio": ratio, "decoupled_sweep": dict(sorted(tried.items()))}

    def april(self, groups: int, repetitions: int) -> dict[str, Any]:
        """Return the ratio of APRIL's generated tokens per second to the coupled mode's, on single turns."""
        sessions = 2 * groups * ROLLOUTS_PER_GROUP
        world = single_turn(make_start(self._folder / "reasoning", REASONING), WORKLOADS / f"{INSTANT}.json")
        compared = {mode: self._modes[mode] for mode in (COUPLED, APRIL)}
        runs = self._in_turn(compared, world, groups, sessions, repetitions, "april")
        ratio = median_ratio(runs[APRIL], runs[COUPLED], "generated_tokens_per_second")
        return {"april_ratio": ratio, "april_modes": {name: medians(of) for name, of in runs.items()}}

    def rollart(self, world: Overrides, groups: int, repetitions: int) -> dict[str, Any]:
        """Return how many times longer other systems take to the last train step than RollArt."""
        runs = self._in_turn(ROLLART_MODES, world, groups, groups * ROLLOUTS_PER_GROUP, repetitions, "rollart")
        return {
            "rollart_ratio": median_ratio(runs[COUPLED], runs[ROLLART], "seconds_to_train_steps"),
            "rollart_ratio_to_one_step_off": median_ratio(runs[ONE_STEP_OFF], runs[ROLLART], "seconds_to_train_steps"),
            "rollart_modes": {mode: medians(of_mode) for mode, of_mode in runs.items()},
        }

    def _in_turn(
        self,
        compared: Mapping[str, Overrides],
        world: Overrides,
        groups: int,
        sessions: int,
        repetitions: int,
        file: str,
    ) -> dict[str, list[Figures]]:
        """Run all modes in turn within every repetition, and store their figures."""
        names = list(compared)
        runs: dict[str, list[Figures]] = {mode: [] for mode in names}
        raw = RawResults(self._results / f"{file}.jsonl", Figures)
        raw.begin()
        for repetition in range(repetitions):
            for turn in range(len(names)):  # the first mode changes with the repetition
                mode, seed = names[(turn + repetition) % len(names)], 1 + repetition
                runs[mode].append(self._run(mode, compared[mode], world, groups, sessions, seed=seed))
                raw.add({"mode": mode, "sessions": sessions, "seed": seed}, runs[mode][-1])
        return runs

    def _searched(self, mode: str, world: Overrides, groups: int, sessions: int) -> dict[str, Any]:
        return medians([self._run(mode, self._modes[mode], world, groups, sessions, seed=SEARCH_SEED)])

    def _run(self, name: str, mode: Overrides, world: Overrides, groups: int, sessions: int, *, seed: int) -> Figures:
        chosen = recipe(world, mode, groups=groups, sessions=sessions, seed=seed)
        with tempfile.TemporaryDirectory() as folder:
            figures = run(chosen, Path(folder), train_steps=self._train_steps)
        click.echo(
            f"{name:17} {sessions:3} sessions  {figures.actions_per_minute:6.0f} actions/min  "
            f"{figures.generated_tokens_per_second:6.0f} tokens/s  busy: env {figures.environment_utilisation:4.0%} "
            f"engine {figures.engine_utilisation:4.0%} trainer {figures.trainer_utilisation:4.0%}  "
            f"{figures.seconds_to_train_steps:5.1f} s  lag {figures.lag_histogram}",
            err=True,
        )
        return figures


if __name__ == "__main__":
    main()
