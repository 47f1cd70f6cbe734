"""Does curating the data help? Plain GRPO against each part of DART's curation, at equal generated tokens.

    python -m benchmarks.curation --json

A tiny policy learns to open locks of graded difficulty (`quartet/env/locks.py`), once per variant, seed and suite. All
runs of a suite start from the same weights, and runs of the same seed are compared, so differences are paired.
Hyper-parameters were chosen on the suite `locks` and seeds 0 to 4; nothing was ever tuned on the suite `locks-2`.
"""

import json
import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import click
import msgspec

from benchmarks.locks.run import Result, run
from benchmarks.locks.start import Starts, make_starts
from benchmarks.locks.statistics import Interval, compare
from benchmarks.locks.variants import BASELINE, VARIANTS, recipe_of

SHOWN = ("success_hard", "success_medium", "success_easy", "success_all", "success_all_gain")
RATIOS = ("area_ratio_to_grpo", "rollouts_ratio", "group_size_ratio", "turns_ratio")
Key = tuple[str, str, int]
"""Suite, variant, seed."""


@click.command()
@click.option("--suite", "suites", multiple=True, default=("locks", "locks-2"), show_default=True)
@click.option("--variant", "variants", multiple=True, type=click.Choice(list(VARIANTS)), help="All by default.")
@click.option("--seeds", default="10-19", show_default=True, help="First and last seed.")
@click.option("--budget-tokens", default=28_000, show_default=True, help="Generated tokens of one run.")
@click.option("--set", "options", multiple=True, metavar="A.B=C", help="A knob of every run, to tune.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Runs at a time, one thread each.")
@click.option("--runs", type=click.Path(path_type=Path), help="File of finished runs: added to and reused.")
@click.option("--json", "as_json", is_flag=True, help="End with one JSON line.")
def main(
    suites: tuple[str, ...],
    variants: tuple[str, ...],
    seeds: str,
    budget_tokens: int,
    options: tuple[str, ...],
    jobs: int,
    runs: Path | None,
    as_json: bool,
) -> None:
    """Compare VARIANTS with plain GRPO."""
    names = list(dict.fromkeys([BASELINE, *(variants or VARIANTS)]))
    first, _, last = seeds.partition("-")
    numbers = list(range(int(first), int(last or first) + 1))
    # Seed by seed: whoever stops half-way has whole pairs.
    keys = [(suite, name, seed) for suite in suites for seed in numbers for name in names]
    results = _read(runs)
    if any(result.tokens != budget_tokens for result in results.values()):
        raise click.UsageError(f"{runs} holds runs of another budget: name another file, or give their --budget-tokens")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        missing = [key for key in keys if key not in results]
        starts = make_starts(Path(folder), suites) if missing else {}
        for key, result in _run_all(missing, starts, Path(folder), budget_tokens, list(options), jobs):
            results[key] = result
            _append(runs, key, result)
            click.echo(f"{' '.join(map(str, key))}: {_line(result)}", err=True)
    reports = {suite: _report(results, suite, names, numbers) for suite in suites}
    for suite, report in reports.items():
        click.echo(f"\n{suite}, seeds {seeds}, {budget_tokens} generated tokens\n{_table(report)}")
    if as_json:
        by_suite = {suite: {"variants": report} for suite, report in reports.items()}
        head = {"variants": reports[suites[0]], "seeds": numbers, "budget_tokens": budget_tokens}
        click.echo(json.dumps(head | {"suites": by_suite}))


def run_one(key: Key, starts: Starts, folder: Path, budget_tokens: int, options: list[str]) -> tuple[Key, Result]:
    """One run, in a process of its own; its ledger is deleted."""
    suite, name, seed = key
    variant = VARIANTS[name]
    policy = starts[suite, variant.demonstrations == "imitated"]
    recipe = recipe_of([*variant.options, *options], suite=suite, policy=policy, seed=seed)
    with tempfile.TemporaryDirectory(dir=folder) as run_dir:
        pooled = variant.demonstrations == "pooled"
        return key, run(recipe, Path(run_dir) / "run", budget_tokens, demonstrations=pooled)


def _run_all(
    keys: list[Key], starts: Starts, folder: Path, budget_tokens: int, options: list[str], jobs: int
) -> Iterator[tuple[Key, Result]]:
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        waiting = [pool.submit(run_one, key, starts, folder, budget_tokens, options) for key in keys]
        for done in as_completed(waiting):
            yield done.result()


def _report(
    results: dict[Key, Result], suite: str, names: list[str], seeds: list[int]
) -> dict[str, dict[str, Interval]]:
    def of(name: str) -> list[Result]:
        return [results[suite, name, seed] for seed in seeds]

    report = {name: compare(of(name), of(BASELINE)) for name in names}
    if {"success_pool", "grpo_sft"} <= set(names):
        against = compare(of("success_pool"), of("grpo_sft"))
        gains = {f"{key}_over_grpo_sft": value for key, value in against.items() if key.endswith("_gain")}
        report["success_pool"] |= gains
    return report


def _table(report: dict[str, dict[str, Interval]]) -> str:
    """Markdown: one line per variant, mean and 95 % interval."""
    columns = [*SHOWN, *RATIOS]
    lines = [f"| variant | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, values in report.items():
        cells = [_cell(values[column], percent=column in SHOWN) for column in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(value: Interval, *, percent: bool) -> str:
    mean, low, high = value
    if percent:
        return f"{100 * mean:.0f} ({100 * low:.0f} to {100 * high:.0f}) %"
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def _line(result: Result) -> str:
    success = ", ".join(f"{difficulty} {100 * share:.0f} %" for difficulty, share in sorted(result.success.items()))
    return f"{success}; {result.rollouts} rollouts, {result.train_steps} train steps, {result.cpu_seconds:.0f} s"


def _read(runs: Path | None) -> dict[Key, Result]:
    if runs is None or not runs.exists():
        return {}
    lines = [msgspec.json.decode(line, type=tuple[Key, Result]) for line in runs.read_bytes().splitlines()]
    return dict(lines)


def _append(runs: Path | None, key: Key, result: Result) -> None:
    if runs is not None:
        with runs.open("ab") as file:
            file.write(msgspec.json.encode((key, result)) + b"\n")


if __name__ == "__main__":
    main()
