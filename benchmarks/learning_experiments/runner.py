"""Run an experiment: every arm with every seed, several at a time, into its file of raw results."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from benchmarks.learning_experiments import find
from benchmarks.learning_experiments.base import Measured, Settings
from benchmarks.learning_experiments.report import Run, claims_table, figures_table
from benchmarks.process_pool import process_pool
from benchmarks.raw_results import FOLDER, RawResults, require_commit

FIRST_PUBLISHED_SEED = 5
Key = tuple[str, int]
"""Arm, seed."""


def seed_range(text: str, results: Path) -> range:
    """Return the seeds of the option `--seeds`, as in `10-19`.

    Raises `click.ClickException` if results in the published folder would not belong to a commit, or if a seed served
    for tuning.
    """
    first, _, last = text.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    require_commit(results)
    if results.resolve() == FOLDER.resolve() and min(seeds) < FIRST_PUBLISHED_SEED:
        raise click.ClickException(
            f"seeds below {FIRST_PUBLISHED_SEED} are for tuning: choose others, or another folder with --results"
        )
    return seeds


def measure(name: str, family: str, seeds: Sequence[int], jobs: int, results: Path, shared: Settings = ()) -> Path:
    """Run an experiment and print its tables; return its file of raw results, which replaces an earlier one.

    `shared` are settings that all runs have and that are not stored, such as the path of a policy made before.
    """
    file = results / f"{family}_{name}.jsonl"
    # An interrupted experiment leaves the published results alone.
    experiment, raw = find(name, family), RawResults(file.with_suffix(".unfinished"), Run)
    raw.begin()
    # Ordered by seed, so that an interrupted experiment has complete pairs.
    keys = [(arm, seed) for seed in seeds for arm in experiment.arms]
    for (arm, seed), run in _run_all(name, family, keys, jobs, shared):
        raw.add({"arm": arm, "seed": seed, "settings": experiment.settings(arm)}, run)
        figures = ", ".join(f"{figure} {value:.4g}" for figure, value in run.figures.items())
        click.echo(f"{name}, {arm}, seed {seed}: {figures}; {run.tokens} tokens, {run.cpu_seconds:.1f} s", err=True)
    raw.file.replace(file)
    click.echo(f"\n{name}\n\n{claims_table(file)}\n\n{figures_table(file)}")
    return file


def run_one(name: str, family: str, arm: str, seed: int, shared: Settings) -> Run:
    """Return the result of one run with the processor time that it took."""
    import torch

    torch.set_num_threads(1)
    started, experiment = time.process_time(), find(name, family)
    measured: Measured = experiment().run([*experiment.settings(arm), *shared], seed)
    seconds = round(time.process_time() - started, 2)
    return Run(figures=measured.figures, tokens=measured.tokens, cpu_seconds=seconds)


def _run_all(name: str, family: str, keys: Sequence[Key], jobs: int, shared: Settings) -> Iterator[tuple[Key, Run]]:
    with process_pool(jobs) as pool:
        waiting = [pool.submit(run_one, name, family, arm, seed, shared) for arm, seed in keys]
        for key, future in zip(keys, waiting, strict=True):
            yield key, future.result()
