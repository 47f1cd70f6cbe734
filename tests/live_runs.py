"""Whole runs of separate processes: as `quartet train` starts them, or from this process with a warm fork server."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.bandit import bandit_recipe
from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.report.staleness import over_lag
from quartet.report.summary import Summary
from quartet.run.run_files import foreign_names
from quartet.runtime.run import run_recipe

T = TypeVar("T")
Wait = Callable[[Callable[[], Any]], Any]
"""Waits until a condition is met, and returns what the condition did."""
TIMEOUT_SECONDS = 120
"""Of a wait; far more than it takes, because the machine may be busy."""


def slow_learner(policy: Path, max_train_steps: int, **sections: dict[str, Any]) -> Recipe:
    """A run without evaluations that keeps its contrast, so that something is left to train until it is over."""
    train = {"max_train_steps": max_train_steps, "learning_rate": 1e-5, "max_seconds": 1000.0}
    return bandit_recipe(policy, evaluation={"before_and_after": False}, train=train, **sections)


def train(run_dir: Path, recipe: Recipe, *, resume: bool = False) -> Summary:
    """Train with the modules in processes of their own, or as the recipe says."""
    return run_recipe(recipe, run_dir, resume=resume, fresh=False, quiet=True)


def train_while(run_dir: Path, recipe: Recipe, act: Callable[[Ledger, Wait], object]) -> Summary:
    """Train until `act` has returned. It is called after the first train step with the ledger and a function that waits
    for a condition, and in a thread: the supervisor needs the main one for its signals."""
    ended = threading.Event()

    def wait(condition: Callable[[], T]) -> T:
        return _wait_for(condition, lambda: "the run has ended" if ended.is_set() else "")

    def work() -> None:
        wait(lambda: train_step(run_dir) >= 1)
        with closing(Ledger.open(run_dir)) as ledger:
            try:
                act(ledger, wait)
            finally:
                ledger.request_stop("the test has seen enough")

    with ThreadPoolExecutor(1) as thread:
        acting = thread.submit(work)
        try:
            summary = train(run_dir, recipe)
        finally:
            ended.set()
    acting.result()
    return summary


def start_run(folder: Path, recipe: Recipe, *arguments: str) -> subprocess.Popen[str]:
    """Start `quartet train` in a process of its own; the run is `folder / "run"`."""
    path, run_dir = folder / "recipe.toml", folder / "run"
    path.write_text(to_toml(recipe))
    command = [sys.executable, "-m", "quartet", "train", str(path), "--run-dir", str(run_dir), "--json", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for the end of a run without an error and return its summary."""
    out, err = process.communicate(timeout=2 * TIMEOUT_SECONDS)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.strip().splitlines()[-1])


def wait_for(condition: Callable[[], T], process: subprocess.Popen[str]) -> T:
    """Wait until a run that `start_run` started meets a condition, and return what the condition did."""

    def failure() -> str:
        return "" if process.poll() is None else f"the run ended: {process.communicate()[1][-3000:]}"

    return _wait_for(condition, failure)


def _wait_for(condition: Callable[[], T], failure: Callable[[], str]) -> T:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (value := condition()):
        assert not (why := failure()), why
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.2)  # a condition may open the ledger, which costs the run processor time
    return value


def train_step(run_dir: Path) -> int:
    """Return the last train step of a run, also of one that has only just begun."""
    if not (run_dir / "ledger.sqlite").exists() or not (run_dir / "policies").exists():
        return 0
    with closing(Ledger.open(run_dir)) as ledger:
        return ledger.batches.train_step()


def died(ledger: Ledger) -> list[str]:
    """Return the names of the modules that died, one per death."""
    return [event.fields["module"] for event in ledger.events(1000) if event.kind == "module_died"]


def promises_hold(run_dir: Path, summary: Summary | dict[str, Any], max_lag: int = 2) -> None:
    """Assert that nothing is lost or trained twice, no trained token is too old, and every file is a run's."""
    assert (summary["lost"], summary["trained_twice"]) == (0, 0)
    with closing(Ledger.open(run_dir)) as ledger:
        assert not list(over_lag(ledger, max_lag))
    assert foreign_names(run_dir) == []
