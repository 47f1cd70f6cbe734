"""Do strategies for rollouts help at equal numbers of generated tokens and environment steps?

    python -m benchmarks.strategies --json                  # run all methods
    python -m benchmarks.strategies --method vade --json    # run one; it replaces its file of raw results
    python -m benchmarks.strategies --method best_locks_tuning --seeds 0-4 --results /tmp/tuning

A method is compared with plain GRPO on a suite of the environment `locks`, on the environment `worlds` or `lookups`, or
on a table of probabilities, with paired seeds. The seeds 0 to 4 are for tuning and are never published. Results depend
on seeds and tokens, not on the machine's speed. Experiments in a browser are described in their files.
"""

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from benchmarks.learning_experiments import find
from benchmarks.learning_experiments.base import Experiment
from benchmarks.learning_experiments.runner import measure, seed_range
from benchmarks.raw_results import results_option
from benchmarks.strategies import IN_A_BROWSER, NAMES, TUNING
from benchmarks.strategies.base import Strategy
from benchmarks.strategies.views import summary


@click.command()
@click.option(
    "--method",
    "names",
    multiple=True,
    type=click.Choice([*NAMES, *TUNING, *IN_A_BROWSER]),
    help="Default: all methods.",
)
@click.option("--seeds", default="10-19", show_default=True, help="First and last seed.")
@click.option("--jobs", default=1, show_default=True, help="Runs at a time, one thread each.")
@click.option(
    "--starts",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of initial policies, one per suite and form of prompts. Those that it lacks are made there, and those "
    "that other code or settings made are refused; default: all are made anew.",
)
@results_option
@click.option("--json", "as_json", is_flag=True, help="End with one JSON line.")
def main(names: Sequence[str], seeds: str, jobs: int, starts: Path | None, results: Path, as_json: bool) -> None:
    """Compare methods with plain GRPO, and print whether their claims hold."""
    numbers = seed_range(seeds, results)
    with tempfile.TemporaryDirectory() as temporary:
        chosen = {name: find(name, "strategies") for name in names or NAMES}
        policies = _initial_policies(chosen.values(), starts or Path(temporary))
        reports = {
            name: summary(measure(name, "strategies", numbers, jobs, results, policies.get(experiment, [])))
            for name, experiment in chosen.items()
        }
    if as_json:
        alone = reports[names[0]] if len(names) == 1 else {}
        click.echo(json.dumps(alone | {"methods": reports}))


def _initial_policies(experiments: Iterable[type[Experiment]], folder: Path) -> dict[type[Experiment], list[str]]:
    """Return the setting of the initial policy of each experiment on an environment; a table of probabilities has
    none."""
    return {
        one: [f"model.path={one.start(folder / _start_name(one))}"] for one in experiments if issubclass(one, Strategy)
    }


def _start_name(experiment: type[Strategy]) -> str:
    return experiment.suite if experiment.form == "turns" else f"{experiment.suite}-{experiment.form}"


if __name__ == "__main__":
    main()
