"""Run a benchmark that ends with one JSON line, and store the line as a raw result.

    python -m benchmarks.record --times 5 start --repetitions 3

runs `python -m benchmarks.start --repetitions 3 --json` five times and adds five lines to
`benchmarks/results/start.jsonl`. Experiments that write their own raw results do not need this command.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import click

from benchmarks.raw_results import RawResults, results_option, taken
from quartet.die_with import child_command


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--times", default=1, show_default=True, help="Number of runs, one after the other.")
@click.option("--anew", is_flag=True, help="Delete the benchmark's earlier raw results first.")
@results_option
@click.argument("benchmark")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(times: int, anew: bool, results: Path, benchmark: str, arguments: tuple[str, ...]) -> None:
    """Run BENCHMARK with ARGUMENTS and store its results."""
    raw = RawResults(results / f"{benchmark}.jsonl", dict[str, Any])
    if anew:
        raw.begin()
    module, options = f"benchmarks.{benchmark}", (*arguments, "--json")
    for repetition in range(times):
        how = taken(["python", "-m", module, *options])  # before the start, so that the load is that of other processes
        done = subprocess.run(child_command(module, *options), stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise click.ClickException(f"benchmarks.{benchmark} ended with exit code {done.returncode}")
        raw.add({"repetition": repetition}, json.loads(done.stdout.splitlines()[-1]), how)
        click.echo(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
