"""How well does a recipe learn? Train it once per seed, as `quartet train` does, and store the summaries.

    python -m benchmarks.runs miniwob --seeds 10-12 --json

adds one line per seed to `benchmarks/results/runs_miniwob.jsonl`, from which the recipe's page makes its tables. Seeds
that were measured with the same settings are skipped; `--anew` deletes them first. Results of recipes that end by
rollouts do not depend on the machine's speed; those of recipes that end by seconds do.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from benchmarks.learning_experiments.runner import seed_range
from benchmarks.raw_results import RawResults, results_option, taken
from benchmarks.runs.views import Summary, mean
from benchmarks.tables import ROOT
from quartet.die_with import child_command


@click.command()
@click.argument("recipe")
@click.option("--seeds", default="10-12", show_default=True, help="First and last seed.")
@click.option("--set", "settings", multiple=True, help="Setting of the recipe; may be repeated.")
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs/benchmarks"), help="Folder of the runs.")
@click.option("--anew", is_flag=True, help="Delete the recipe's earlier raw results first.")
@results_option
@click.option("--json", "as_json", is_flag=True, help="End with one JSON line.")
def main(
    recipe: str, seeds: str, settings: Sequence[str], runs: Path, anew: bool, results: Path, as_json: bool
) -> None:
    """Train RECIPE once per seed and store the summaries."""
    raw = RawResults(results / f"runs_{recipe}.jsonl", Summary)
    if anew:
        raw.begin()
    measured = [key for key, _ in raw.read()]
    for seed in seed_range(seeds, results):
        key = {"seed": seed, "settings": list(settings)}
        if key not in measured:
            how = taken()  # before the start, so that the load is that of other processes
            raw.add(key, train(recipe, seed, settings, runs / f"{recipe}-{seed}"), how)
            click.echo(f"seed {seed}: {mean(raw.file)} so far")
    if as_json:
        found = [msgspec.to_builtins(summary) for _, summary in raw.read()]
        click.echo(json.dumps({"recipe": recipe, "success_after": mean(raw.file), "runs": found}))


def train(recipe: str, seed: int, settings: Sequence[str], run_dir: Path) -> Summary:
    """Train one run in a process of its own and return its summary. Raises `click.ClickException` if it fails."""
    options = [f"--set={setting}" for setting in (f"seed={seed}", *settings)]
    command = child_command("quartet", "train", recipe, "--run-dir", str(run_dir), "--fresh", "--json", *options)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise click.ClickException(f"the run of seed {seed} ended with exit code {done.returncode}; see {run_dir}/logs")
    return msgspec.json.decode((run_dir / "summary.json").read_bytes(), type=Summary)


if __name__ == "__main__":
    main()
