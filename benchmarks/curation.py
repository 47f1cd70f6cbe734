"""Does curating the data help? Plain GRPO against each part of DART's curation, with equal numbers of generated tokens.

    python -m benchmarks.curation --json

A tiny policy learns to open locks of graded difficulty (the environment `locks`), once per variant, seed and condition.
All runs of a suite start from the same weights, and runs of the same seed are compared, so differences are paired.
Hyper-parameters were chosen on the suite `locks` and seeds 0 to 4; nothing was ever tuned on the suite `locks-2`. The
printed tables are in `recipes/dart/README.md`; `python -m benchmarks.tables` makes them from the raw results.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path

import click

from benchmarks.in_memory import folder_in_memory
from benchmarks.locks.report import goals_table, make_report, table
from benchmarks.locks.run import Result, run
from benchmarks.locks.start import Starts, make_starts
from benchmarks.locks.variants import BASELINE, CONDITIONS, VARIANTS, recipe_of
from benchmarks.process_pool import process_pool
from benchmarks.raw_results import FOLDER, RawResults

Key = tuple[str, str, int]
"""Condition, variant, seed."""


@click.command()
@click.option("--condition", "conditions", multiple=True, type=click.Choice(list(CONDITIONS)), help="Default: all.")
@click.option(
    "--variant", "variants", multiple=True, type=click.Choice(list(VARIANTS)), help="Default: the condition's variants."
)
@click.option("--seeds", default="20-29", show_default=True, help="First and last seed.")
@click.option("--budget-tokens", default=60_000, show_default=True, help="Generated tokens of one run.")
@click.option("--set", "options", multiple=True, metavar="A.B=C", help="A setting of every run, to tune.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Runs at a time, one thread each.")
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=FOLDER / "curation.jsonl",
    help="File of raw results: finished runs are reused, new ones added; default: benchmarks/results/curation.jsonl.",
)
@click.option("--json", "as_json", is_flag=True, help="End with one JSON line.")
def main(
    conditions: tuple[str, ...],
    variants: tuple[str, ...],
    seeds: str,
    budget_tokens: int,
    options: tuple[str, ...],
    jobs: int,
    runs: Path,
    as_json: bool,
) -> None:
    """Compare VARIANTS with plain GRPO."""
    names = {
        name: list(dict.fromkeys([BASELINE, *(variants or CONDITIONS[name].variants or VARIANTS)]))
        for name in conditions or CONDITIONS
    }
    first, _, last = seeds.partition("-")
    numbers = list(range(int(first), int(last or first) + 1))
    # Ordered by seed, so that an interrupted experiment has complete pairs.
    keys = [(condition, name, seed) for condition in names for seed in numbers for name in names[condition]]
    raw = RawResults(runs, Result)
    results = _finished(raw, budget_tokens, list(options))
    with folder_in_memory() as folder:
        missing = [key for key in keys if key not in results]
        suites = dict.fromkeys(CONDITIONS[condition].suite for condition, _, _ in missing)
        starts = make_starts(folder, suites) if missing else {}
        for key, result in _run_all(missing, starts, folder, budget_tokens, list(options), jobs):
            results[key] = result
            condition, variant, seed = key
            raw.add({"condition": condition, "variant": variant, "seed": seed, "set": list(options)}, result)
            click.echo(f"{' '.join(map(str, key))}: {_line(result)}", err=True)
    reports = {
        condition: make_report({key[1:]: results[key] for key in keys if key[0] == condition}, of_condition, numbers)
        for condition, of_condition in names.items()
    }
    for condition, report in reports.items():
        click.echo(f"\n{condition}, seeds {seeds}, {budget_tokens} generated tokens\n\n{table(report)}")
    click.echo(f"\n{goals_table(reports)}")
    if as_json:
        by_condition = {condition: {"variants": report} for condition, report in reports.items()}
        head = {"variants": next(iter(reports.values())), "seeds": numbers, "budget_tokens": budget_tokens}
        click.echo(json.dumps(head | {"conditions": by_condition}))


def run_one(key: Key, starts: Starts, folder: Path, budget_tokens: int, options: list[str]) -> tuple[Key, Result]:
    """Return the key and the result of one run; its ledger is deleted."""
    condition, name, seed = key
    variant, on = VARIANTS[name], CONDITIONS[condition]
    policy = starts[on.suite, variant.imitated]
    recipe = recipe_of([*on.options, *variant.options, *options], suite=on.suite, policy=policy, seed=seed)
    with tempfile.TemporaryDirectory(dir=folder) as run_dir:
        return key, run(recipe, Path(run_dir) / "run", budget_tokens, demonstrations=variant.pooled)


def _run_all(
    keys: list[Key], starts: Starts, folder: Path, budget_tokens: int, options: list[str], jobs: int
) -> Iterator[tuple[Key, Result]]:
    with process_pool(jobs) as pool:
        waiting = [pool.submit(run_one, key, starts, folder, budget_tokens, options) for key in keys]
        for done in as_completed(waiting):
            yield done.result()


def _line(result: Result) -> str:
    success = ", ".join(f"{difficulty} {100 * share:.0f} %" for difficulty, share in sorted(result.success.items()))
    return f"{success}; {result.rollouts} rollouts, {result.train_steps} train steps, {result.cpu_seconds:.0f} s"


def _finished(raw: RawResults[Result], budget_tokens: int, options: list[str]) -> dict[Key, Result]:
    """Return the runs in the file. Raises `click.UsageError` if some have another budget or other settings."""
    runs = raw.read()
    if any(result.tokens != budget_tokens for _, result in runs):
        raise click.UsageError(
            f"{raw.file} has runs with another budget: name another file, or give their --budget-tokens"
        )
    if any(key["set"] != options for key, _ in runs):
        raise click.UsageError(f"{raw.file} has runs with other settings: name another file, or give their --set")
    return {(key["condition"], key["variant"], key["seed"]): result for key, result in runs}


if __name__ == "__main__":
    main()
