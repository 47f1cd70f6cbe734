"""How long does the start of a run take, and the restart of a killed module?

    python -m benchmarks.start --json

The run is a bandit run of three train steps. The two start methods run in turn: modules forked from a fork server, and
modules spawned one by one. Processor seconds are summed over all processes of the run. A restart ends when the new
process has reported that it works. Each module is killed once: a first restart has no delay.
"""

import ctypes
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import click
import psutil

from benchmarks.bandit import bandit_recipe, make_bandit_policy
from quartet.config import Recipe
from quartet.die_with import child_command
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.report.totals import run_totals
from quartet.types.phase import STARTING

METHODS = ("forkserver", "spawn")
KILLED = ("engine", "worker", "trainer")
_PR_SET_CHILD_SUBREAPER = 36
POLL_SECONDS = 0.02
Measured = dict[str, float]


@click.command()
@click.option("--repetitions", default=5, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(repetitions: int, as_json: bool) -> None:
    """Measure both start methods in turn; print medians and ranges."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # this process adopts processes whose parent has died
    found: dict[str, list[Measured]] = {method: [] for method in METHODS}
    with tempfile.TemporaryDirectory() as folder:
        policy = make_bandit_policy(Path(folder) / "policy")
        for repetition in range(repetitions):
            for method in METHODS:
                found[method].append(measure(policy, Path(folder) / f"{method}-{repetition}", method))
    result: dict[str, object] = {"repetitions": repetitions, "load_before": os.getloadavg()[0]}
    for name in found["spawn"][0]:
        values = {method: [one[name] for one in found[method]] for method in METHODS}
        medians = {method: statistics.median(values[method]) for method in METHODS}
        ratio = medians["spawn"] / medians["forkserver"]
        result[name] = {
            **{method: {"median": round(medians[method], 2), "all": values[method]} for method in METHODS},
            "ratio_to_spawn": round(ratio, 2),
        }
        spans = (f"{method} {medians[method]:6.2f} ({min(v):.2f} to {max(v):.2f})" for method, v in values.items())
        click.echo(f"{name:26} {'   '.join(spans)}   ratio {ratio:.2f}")
    if as_json:
        click.echo(json.dumps(result))


def measure(policy: Path, folder: Path, method: str) -> Measured:
    """Return the figures of one start method."""
    folder.mkdir()
    (folder / "three.toml").write_text(to_toml(_recipe(policy, max_train_steps=3)))
    (folder / "long.toml").write_text(to_toml(_recipe(policy, max_train_steps=100_000)))
    before, begun_at = _children_seconds(), time.monotonic()
    run = _train(folder / "three.toml", folder / "three", method)
    _wait_until(lambda: _has_rollout(folder / "three"), run)
    seconds_to_first_rollout = time.monotonic() - begun_at
    run.wait()
    _wait_for_all()
    cpu_seconds_three_steps = _children_seconds() - before
    back = _seconds_back(folder, method)
    return {
        "seconds_to_first_rollout": round(seconds_to_first_rollout, 2),
        "seconds_back_after_kill": round(statistics.mean(back), 2),
        "cpu_seconds_three_steps": round(cpu_seconds_three_steps, 2),
    }


def _recipe(policy: Path, max_train_steps: int) -> Recipe:
    return bandit_recipe(
        policy,
        train={"max_train_steps": max_train_steps, "max_seconds": 3600.0},
        evaluation={"before_and_after": False, "supervised_control": False},
    )


def _train(recipe: Path, run_dir: Path, method: str) -> subprocess.Popen[bytes]:
    command = child_command("quartet", "train", str(recipe), "--run-dir", str(run_dir), "--json")
    return subprocess.Popen([*command, "--set", f"runtime.start_method={method}"], stdout=subprocess.DEVNULL)


def _seconds_back(folder: Path, method: str) -> list[float]:
    """Kill modules of an active run, one after the other; return the seconds until each works again."""
    run_dir = folder / "long"
    run = _train(folder / "long.toml", run_dir, method)
    _wait_until(lambda: _has_rollout(run_dir), run)
    away: list[float] = []
    with closing(Ledger.open(run_dir)) as ledger:
        for module in KILLED:
            _wait_until(lambda module=module: _at_work(ledger, module), run)
            pid = _at_work(ledger, module)
            assert pid is not None
            psutil.Process(pid).kill()
            killed_at = time.monotonic()
            _wait_until(lambda module=module, pid=pid: _at_work(ledger, module) not in (None, pid), run)
            away.append(time.monotonic() - killed_at)
    run.terminate()
    run.wait()
    _wait_for_all()
    return away


def _at_work(ledger: Ledger, module: str) -> int | None:
    """Return the process id of a module whose start-up is complete, or None."""
    rows = {row.module: row for row in ledger.modules.all()}
    return rows[module].pid if module in rows and rows[module].state != STARTING else None


def _has_rollout(run_dir: Path) -> bool:
    if not Ledger.exists(run_dir):
        return False
    with closing(Ledger.open(run_dir)) as ledger:
        return run_totals(ledger).train_rollouts > 0


def _wait_until(condition: Callable[[], object], run: subprocess.Popen[bytes]) -> None:
    while not condition():
        if run.poll() is not None:
            raise SystemExit("the run failed; its error message is above")
        time.sleep(POLL_SECONDS)


def _wait_for_all() -> None:
    """Wait for every process of the run; only then does the system count the processor time of a child process."""
    try:
        while True:
            os.wait()
    except ChildProcessError:
        return


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
