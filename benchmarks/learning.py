"""Do credits and losses do what their papers say? One experiment per method, with equal numbers of generated tokens.

    python -m benchmarks.learning                       # list the experiments
    python -m benchmarks.learning rloo dapo --json      # run them; each replaces its file of raw results

An experiment compares arms, which differ in a few settings of a recipe. Runs of the same seed are paired. The seeds 0
to 4 are for tuning and are never published. Results depend on seeds and tokens, not on the machine's speed.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.learning_experiments import NAMES, TUNING, find
from benchmarks.learning_experiments.report import compared
from benchmarks.learning_experiments.runner import measure, seed_range
from benchmarks.raw_results import results_option


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*NAMES, *TUNING]))
@click.option("--seeds", default="10-19", show_default=True, help="First and last seed.")
@click.option("--jobs", default=1, show_default=True, help="Runs at a time, one thread each.")
@results_option
@click.option("--json", "as_json", is_flag=True, help="End with one JSON line.")
def main(names: Sequence[str], seeds: str, jobs: int, results: Path, as_json: bool) -> None:
    """Run the experiments NAMES, and print whether their claims hold."""
    if not names:
        click.echo("\n".join(f"{name:16} {(find(name).__doc__ or '').splitlines()[0]}" for name in NAMES))
    numbers = seed_range(seeds, results)
    reports = {name: compared(measure(name, "learning", numbers, jobs, results)) for name in names}
    if as_json:
        click.echo(json.dumps({"seeds": list(numbers), "experiments": reports}))


if __name__ == "__main__":
    main()
