"""The whole house on a two-armed bandit: every module its own process, nothing simulated."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.bandit import bandit_recipe
from quartet.config import Straggler
from quartet.config.running import Ledger as LedgerPlace
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.report.plot import draw_run
from quartet.run.run_files import foreign_names
from tests.postgresql import needs_postgresql, server_url

pytestmark = pytest.mark.slow


def slow_learner(policy: Path, max_train_steps: int):
    """A run without evaluations that keeps its contrast, so that something is left to train until it is over."""
    train = {"max_train_steps": max_train_steps, "learning_rate": 1e-5, "max_seconds": 1000.0}
    return bandit_recipe(policy, evaluation={"before_and_after": False}, train=train)


def start_run(folder: Path, recipe, *arguments: str) -> subprocess.Popen[str]:
    """`quartet train` in a process of its own."""
    path = folder / "recipe.toml"
    path.write_text(to_toml(recipe))
    command = [
        sys.executable,
        "-m",
        "quartet",
        "train",
        str(path),
        "--run-dir",
        str(folder / "run"),
        "--json",
        *arguments,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], timeout_seconds: float = 240) -> dict:
    out, err = process.communicate(timeout=timeout_seconds)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.strip().splitlines()[-1])


def wait_for(condition, process: subprocess.Popen[str], timeout_seconds: float = 120):
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1][-3000:]
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError("the run did not get there in time")


def train_step(run: Path) -> int:
    if not (run / "ledger.sqlite").exists() or not (run / "policies").exists():
        return 0
    ledger = Ledger.open(run)
    step = ledger.train_step()
    ledger.close()
    return step


def too_old(run: Path, max_lag: int) -> list[str]:
    """Committed batches with a trained token that is too old. (A trajectory's oldest token may be older: masked.)"""
    ledger = Ledger.open(run)
    found = list(ledger.over_lag(max_lag))
    ledger.close()
    return found


def test_bandit_learns_and_every_promise_holds(tmp_path, bandit_policy):
    summary = finish(start_run(tmp_path, bandit_recipe(bandit_policy)))
    assert 0.2 < summary["success_before_sampled"] < 0.8
    assert summary["success_after"] > 0.95
    assert summary["success_after_sampled"] > 0.95
    promises_hold(tmp_path / "run", summary)
    assert (tmp_path / "run" / "summary.json").is_file()
    assert draw_run(tmp_path / "run", summary).read_bytes().startswith(b"\x89PNG")
    assert set(summary["share_waiting"]) == {"env", "engine", "worker", "manager", "trainer"}


@needs_postgresql
def test_every_promise_holds_on_postgresql(tmp_path, bandit_policy):
    recipe = slow_learner(bandit_policy, max_train_steps=5).model_copy(update={"ledger": LedgerPlace(url=server_url())})
    summary = finish(start_run(tmp_path, recipe))
    assert summary["train_steps"] == 5
    promises_hold(tmp_path / "run", summary)


def promises_hold(run: Path, summary: dict) -> None:
    assert (summary["lost"], summary["trained_twice"]) == (0, 0)
    assert not too_old(run, max_lag=2)
    assert foreign_names(run) == []


def test_each_killed_module_comes_back_and_the_promises_hold(tmp_path, bandit_policy):
    process = start_run(tmp_path, slow_learner(bandit_policy, max_train_steps=1000))
    wait_for(lambda: train_step(tmp_path / "run") >= 3, process)
    ledger = Ledger.open(tmp_path / "run")
    for module in ("worker", "engine", "env", "trainer", "manager"):
        victim = next(row.pid for row in ledger.modules() if row.module == module)
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda module=module: module in died(ledger), process)
        gone_at = ledger.train_step()
        wait_for(lambda gone_at=gone_at: ledger.train_step() >= gone_at + 3, process)
    ledger.request_stop("seen enough")
    summary = finish(process)
    assert set(died(ledger)) == {"engine", "env", "manager", "trainer", "worker"}
    promises_hold(tmp_path / "run", summary)
    ledger.close()


def died(ledger: Ledger) -> list[str]:
    return [event.fields["module"] for event in ledger.events(1000) if event.kind == "module_died"]


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, signal.SIGTERM, pytest.param(signal.SIGSTOP, marks=pytest.mark.campaign)]
)
def test_one_of_two_engines_may_die_be_ended_or_freeze(tmp_path, bandit_policy, how):
    """Its requests go on at the other one: no rollout fails, and both serve the newest policy in the end."""
    recipe = slow_learner(bandit_policy, max_train_steps=1000)
    engine = recipe.engine.model_copy(update={"replicas": 2})
    recipe = recipe.model_copy(update={"engine": engine})
    process = start_run(tmp_path, recipe)
    wait_for(lambda: train_step(tmp_path / "run") >= 3, process)
    ledger = Ledger.open(tmp_path / "run")
    victim = next(row.pid for row in ledger.modules() if row.module == "engine-2")
    os.kill(victim, how)
    wait_for(lambda: died(ledger), process)
    gone_at = ledger.train_step()
    wait_for(lambda: ledger.train_step() >= gone_at + 3, process)
    ledger.request_stop("seen enough")
    summary = finish(process)
    assert (summary["lost"], summary["trained_twice"]) == (0, 0)
    assert "error_engine" not in summary["statuses"] and "retried" not in summary["attempts"]
    assert set(died(ledger)) == {"engine-2"}
    silent = {event.fields["module"] for event in ledger.events(1000) if event.kind == "module_silent"}
    assert ("engine-2" in silent) == (how is signal.SIGSTOP)
    ledger.close()


@pytest.mark.parametrize(
    ("schedule", "rule"), [("task_wise", "redundancy"), ("one_step_off", "early_stop"), ("batch_synchronous", "april")]
)
def test_every_schedule_trains(tmp_path, bandit_policy, schedule, rule):
    recipe = slow_learner(bandit_policy, max_train_steps=6)
    admission = recipe.admission.model_copy(update={"schedule": schedule})
    straggler = Straggler(name=rule)
    summary = finish(start_run(tmp_path, recipe.model_copy(update={"admission": admission, "straggler": straggler})))
    assert (summary["train_steps"], summary["lost"], summary["trained_twice"]) == (6, 0, 0)
    assert not too_old(tmp_path / "run", max_lag=2)
    if schedule == "one_step_off":
        assert max(int(lag) for lag in summary["lag_histogram"]) <= 1


def test_ctrl_c_leaves_no_process_and_resume_goes_on(tmp_path, bandit_policy):
    recipe = slow_learner(bandit_policy, max_train_steps=15)
    process = start_run(tmp_path, recipe)
    wait_for(lambda: train_step(tmp_path / "run") >= 3, process)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 5
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "--resume" in err
    _, alive = psutil.wait_procs(children, timeout=15)  # the fork server ends when it sees that its supervisor has
    assert alive == []
    stopped_at = train_step(tmp_path / "run")
    summary = finish(start_run(tmp_path, recipe, "--resume"))
    assert summary["train_steps"] == 15 > stopped_at
    assert summary["lost"] == 0
    assert summary["trained_twice"] == 0


def test_a_killed_supervisor_takes_its_modules_along(tmp_path, bandit_policy):
    recipe = slow_learner(bandit_policy, max_train_steps=500)
    process = start_run(tmp_path, recipe)
    wait_for(lambda: train_step(tmp_path / "run") >= 1, process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(children, timeout=15)
    assert alive == []
