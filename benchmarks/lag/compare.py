"""All runs of the comparison, in parallel processes."""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from benchmarks.in_memory import folder_in_memory
from benchmarks.lag.arms import Arm, arms
from benchmarks.lag.report import make_report, success, table
from benchmarks.lag.run import Learned, learn
from benchmarks.locks.start import make_start
from benchmarks.process_pool import process_pool
from benchmarks.raw_results import RawResults

RUNS_PER_PROCESS = 8
"""Average number of runs after which a process is replaced, since a run leaves about 100 MB of memory in its process.
(A pool that replaces its processes itself may hang: CPython issue 115634.)"""


def compare_learning(
    max_lags: Sequence[int], seeds: Sequence[int], options: Sequence[str], results: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Run every arm with every seed, as many at a time as there are cores.

    A run's result depends on its arm and seed only, so runs may be concurrent. `options` override settings, as
    SETTING=VALUE. Raw results are written to the file `results`.
    """
    compared = arms(max_lags)
    keys = [(name, seed) for seed in seeds for name in compared]
    runs: dict[str, list[Learned]] = {name: [] for name in compared}
    raw = RawResults(results, Learned)
    raw.begin()
    cores = os.cpu_count() or 1
    with folder_in_memory() as folder:
        with process_pool(cores) as pool:
            policy = str(pool.submit(make_start, folder / "start").result())
        for first in range(0, len(keys), RUNS_PER_PROCESS * cores):
            some = keys[first : first + RUNS_PER_PROCESS * cores]
            with process_pool(cores) as pool:
                waiting = [pool.submit(_run, compared[name], policy, seed, options, folder) for name, seed in some]
                for (name, seed), future in zip(some, waiting, strict=True):
                    run = future.result()
                    runs[name].append(run)
                    arm = compared[name]
                    raw.add(
                        {"arm": name, "objective": arm.objective, "max_lag": arm.max_lag, "seed": seed, "set": options},
                        run,
                    )
                    say(f"{name:22} seed {seed:3}  success {success(run):6.1%}  {run.cpu_seconds:4.0f} s of a core")
    report = make_report(runs, compared)
    say(table(report))
    lines = {name: to_builtins(line) for name, line in report.items()}
    return {"learning": lines, "learning_seeds": list(seeds), "learning_options": list(options)}


def _run(arm: Arm, policy: str, seed: int, options: Sequence[str], folder: Path) -> Learned:
    with tempfile.TemporaryDirectory(dir=folder) as run_dir:
        return learn(arm.recipe(policy, seed, options), Path(run_dir) / "run")
