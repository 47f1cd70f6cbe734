"""How many rollouts per second does Quartet train, compared with TRL's GRPOTrainer?

A rollout counts by the share of its tokens that the loss counted: Quartet masks tokens with a lag above
`admission.max_lag`, which take time but are not learned from. The rate of finished rollouts is printed beside it.

All contenders use the same policy (Qwen3, 3.4 M parameters, or that of `--model`, in float32, after imitation of a
player that knows the form of actions), the same multi-turn text environment with 0, 50 and 200 ms per step, groups of
8, 16 rollouts per train step, at most 32 tokens per turn, the same optimizer, and the same processor cores. TRL is
measured in two ways: with `environment_factory`, which its documentation recommends, and with a hand-written
`rollout_func` that steps all environments of a batch in threads. The contenders run in turn at each latency. Raw
results are in `against_trl.jsonl`; those of another model are in a file of their own, `against_trl.MODEL.jsonl`.
"""

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import click
import psutil

from benchmarks.raw_results import RawResults, results_option
from benchmarks.trl_contenders.base import Contender, Job, Run
from benchmarks.trl_contenders.ours import Ours
from benchmarks.trl_contenders.start import make_start, teach
from benchmarks.trl_contenders.theirs import THEIRS, Trl, TrlProcess
from quartet.cli.parameters import PolicyOrRun

WORKLOADS = Path(__file__).parent / "workloads"
LAST_STEPS = 4
"""Number of last train steps whose mean reward is compared."""


@click.command()
@click.option("--delays", default="0,50,200", show_default=True, help="Milliseconds per step.")
@click.option("--train-steps", default=6, show_default=True, help="Train steps of TRL's runs with a delay.")
@click.option("--learning-steps", default=16, show_default=True, help="Train steps of all other runs.")
@click.option("--warm-up-steps", default=2, show_default=True, help="First train steps, which are not timed.")
@click.option("--repetitions", default=1, show_default=True)
@click.option("--cores", default=2, show_default=True, help="Processor cores of each contender.")
@click.option(
    "--policy", default="runs/benchmarks/desk", show_default=True, help="Folder of the policy, made if missing."
)
@click.option("--model", type=PolicyOrRun(), help="Folder or name of another model, such as smollm2-135m.")
@click.option("--way", "ways", type=click.Choice(THEIRS), multiple=True, help="A way to use TRL; default: both.")
@click.option("--trl-python", default=sys.executable, help="Python interpreter that has TRL; default: this one.")
@results_option
@click.option("--json", "as_json", is_flag=True)
def main(
    delays: str,
    train_steps: int,
    learning_steps: int,
    warm_up_steps: int,
    repetitions: int,
    cores: int,
    policy: str,
    model: Path | None,
    ways: tuple[str, ...],
    trl_python: str,
    results: Path,
    as_json: bool,
) -> None:
    """Measure against TRL."""
    start = start_policy(Path(policy).resolve(), model)
    milliseconds = [int(delay) for delay in delays.split(",")]
    _take_cores(cores)
    runs: dict[tuple[str, int], list[Run]] = {}
    raw = RawResults(results_file(results, model), Run)
    raw.begin()
    with contenders(trl_python, cores, ways or THEIRS) as everybody:
        for repetition, delay, contender in in_turns(everybody, milliseconds, repetitions):
            job = Job(
                contender=contender.name,
                policy=str(start),
                workload=str(WORKLOADS / f"step_{delay}_ms.json"),
                train_steps=train_steps if delay and contender.name in THEIRS else learning_steps,
                seed=repetition,
                threads=cores,
            )
            run = measure(contender, job)
            runs.setdefault((contender.name, delay), []).append(run)
            key = {"contender": contender.name, "delay": delay, "repetition": repetition}
            raw.add(key | {"warm_up_steps": warm_up_steps, "cores": cores}, run)
            click.echo(line(contender.name, delay, run, warm_up_steps))
    result = summary(runs, milliseconds, warm_up_steps)
    click.echo(json.dumps(result) if as_json else "\n".join(f"{key:32} {value}" for key, value in result.items()))


def start_policy(folder: Path, model: Path | None) -> Path:
    """Return the folder of the policy that all contenders start from; make it if missing, in or beside `folder`."""
    if model is None:
        return make_start(folder)
    model = model.resolve()
    # The gigabytes that imitation takes are given back when its process ends.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(teach, model, folder.with_name(f"{folder.name}-{model.name}")).result()


def results_file(folder: Path, model: Path | None) -> Path:
    """Return the file of raw results, one for each model, since a new run replaces the results in its file."""
    return folder / (f"against_trl.{model.resolve().name}.jsonl" if model else "against_trl.jsonl")


@contextmanager
def contenders(trl_python: str, threads: int, ways: Sequence[str]) -> Iterator[list[Contender]]:
    """Yield the contenders, TRL in one or two ways and Quartet; end their processes afterwards."""
    with closing(TrlProcess(trl_python, threads)) as process:
        yield [*(Trl(name, process) for name in ways), Ours()]


def in_turns(
    everybody: Sequence[Contender], delays: Sequence[int], repetitions: int
) -> Iterator[tuple[int, int, Contender]]:
    """Yield (repetition, milliseconds per step, contender) of every run; the first contender changes per repetition."""
    for repetition, delay, turn in product(range(repetitions), delays, range(len(everybody))):
        yield repetition, delay, everybody[(turn + repetition) % len(everybody)]


def measure(contender: Contender, job: Job) -> Run:
    """Return the result of one run, and delete its files."""
    with tempfile.TemporaryDirectory() as folder:
        return contender.run(job, Path(folder))


def line(name: str, delay: int, run: Run, warm_up_steps: int) -> str:
    """Return one run as a line of text."""
    seconds = statistics.median(run.step_seconds(warm_up_steps))
    return (
        f"{name:20} {delay:3} ms  {run.trained_rollouts_per_second(warm_up_steps):6.2f} trained of "
        f"{run.rollouts_per_second(warm_up_steps):6.2f} rollouts/s  "
        f"{seconds:6.2f} s/step  reward {run.reward(len(run.steps)):.2f} -> {run.reward(LAST_STEPS):.2f}  "
        f"{run.steps[-1].generated_tokens:.0f} tokens"
    )


def summary(runs: dict[tuple[str, int], list[Run]], delays: list[int], warm_up_steps: int) -> dict[str, Any]:
    """Return medians over the repetitions. Ratios of trained rollouts per second are taken within each repetition."""
    rates = {key: [run.trained_rollouts_per_second(warm_up_steps) for run in of_key] for key, of_key in runs.items()}
    finished = {key: [run.rollouts_per_second(warm_up_steps) for run in of_key] for key, of_key in runs.items()}
    shares = {key: [run.trained_share(warm_up_steps) for run in of_key] for key, of_key in runs.items()}
    result: dict[str, Any] = {}
    theirs = [name for name in THEIRS if (name, delays[0]) in runs]
    for name in theirs:
        result[f"ratio_to_{name}"] = {
            str(delay): round(_median_ratio(rates[Ours.name, delay], rates[name, delay]), 3) for delay in delays
        }
    names = (*theirs, Ours.name)
    figures = {"trained_rollouts_per_second": rates, "rollouts_per_second": finished, "trained_token_share": shares}
    for figure, values in figures.items():
        result[figure] = {
            name: {str(delay): round(statistics.median(values[name, delay]), 3) for delay in delays} for name in names
        }
    longest = min(delays)  # this run has the most train steps, so its rewards are compared
    curves = {name: [[round(step.reward, 3) for step in run.steps] for run in runs[name, longest]] for name in names}
    last = {name: statistics.mean(run.reward(LAST_STEPS) for run in runs[name, longest]) for name in names}
    result["reward_of_last_steps"] = {name: round(reward, 3) for name, reward in last.items()}
    result["reward_by_train_step"] = curves
    result["generated_tokens_per_rollout"] = {
        name: round(statistics.mean(step.generated_tokens for run in runs[name, longest] for step in run.steps), 1)
        for name in names
    }
    return result | {"load_average_1min": round(psutil.getloadavg()[0], 2)}


def _median_ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


def _take_cores(count: int) -> None:
    """Restrict this process, and all processes that it starts, to the first `count` cores."""
    if sys.platform == "linux":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


if __name__ == "__main__":
    main()
