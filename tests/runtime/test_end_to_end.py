"""A two-armed bandit with every module in its own process, and nothing simulated."""

import os
import signal
from contextlib import closing

import psutil
import pytest

from benchmarks.bandit import bandit_recipe
from quartet.config import Straggler
from quartet.config.running import Ledger as LedgerPlace
from quartet.ledger import Ledger
from quartet.report.plot import draw_run
from tests.live_runs import (
    TIMEOUT_SECONDS,
    died,
    promises_hold,
    slow_learner,
    start_run,
    train,
    train_step,
    train_while,
    wait_for,
)
from tests.postgresql import needs_postgresql, server_url

pytestmark = pytest.mark.slow


def test_bandit_learns_and_every_promise_holds(tmp_path, bandit_policy):
    recipe = bandit_recipe(bandit_policy, train={"max_train_steps": 15}, evaluation={"episodes_per_family": 20})
    summary = train(tmp_path / "run", recipe.model_copy(update={"filters": []}))  # also trains what is all solved
    assert 0.2 < summary["success_before_sampled"] < 0.8
    assert summary["success_after"] > 0.9
    assert summary["success_after_sampled"] > 0.9
    promises_hold(tmp_path / "run", summary)
    assert (tmp_path / "run" / "summary.json").is_file()
    assert draw_run(tmp_path / "run", summary).read_bytes().startswith(b"\x89PNG")
    assert set(summary["share_waiting"]) == {"env", "engine", "worker", "manager", "trainer"}


@needs_postgresql
def test_every_promise_holds_on_postgresql_and_task_wise(tmp_path, bandit_policy):
    recipe = slow_learner(bandit_policy, max_train_steps=5, admission={"schedule": "task_wise"})
    place, rule = LedgerPlace(url=server_url()), Straggler(name="redundancy")
    summary = train(tmp_path / "run", recipe.model_copy(update={"ledger": place, "straggler": rule}))
    assert summary["train_steps"] == 5
    promises_hold(tmp_path / "run", summary)


def test_each_killed_module_comes_back_and_the_promises_hold(tmp_path, bandit_policy):
    def kill_each(ledger, wait):
        for module in ("worker", "engine", "env", "trainer", "manager"):
            os.kill(next(row.pid for row in ledger.modules.all() if row.module == module), signal.SIGKILL)
            wait(lambda module=module: module in died(ledger))
            killed_at = ledger.batches.train_step()
            wait(lambda killed_at=killed_at: ledger.batches.train_step() >= killed_at + 3)

    summary = train_while(tmp_path / "run", slow_learner(bandit_policy, max_train_steps=1000), kill_each)
    with closing(Ledger.open(tmp_path / "run")) as ledger:
        assert set(died(ledger)) == {"engine", "env", "manager", "trainer", "worker"}
    promises_hold(tmp_path / "run", summary)


@pytest.mark.parametrize(
    "how",
    [signal.SIGKILL, *(pytest.param(how, marks=pytest.mark.campaign) for how in (signal.SIGTERM, signal.SIGSTOP))],
)
def test_one_of_two_engines_may_die_be_ended_or_freeze(tmp_path, bandit_policy, how):
    """Its requests continue at the other one: no rollout fails, and both serve the newest policy in the end."""

    def end_the_second(ledger, wait):
        os.kill(next(row.pid for row in ledger.modules.all() if row.module == "engine-2"), how)
        wait(lambda: died(ledger))
        killed_at = ledger.batches.train_step()
        wait(lambda: ledger.batches.train_step() >= killed_at + 3)

    recipe = slow_learner(bandit_policy, max_train_steps=1000, engine={"replicas": 2})
    summary = train_while(tmp_path / "run", recipe, end_the_second)
    assert (summary["lost"], summary["trained_twice"]) == (0, 0)
    assert "error_engine" not in summary["statuses"] and "retried" not in summary["attempts"]
    with closing(Ledger.open(tmp_path / "run")) as ledger:
        assert set(died(ledger)) == {"engine-2"}
        silent = {event.fields["module"] for event in ledger.events(1000) if event.kind == "module_silent"}
    assert ("engine-2" in silent) == (how is signal.SIGSTOP)


@pytest.mark.parametrize(
    ("schedule", "rule"),
    [("one_step_off", "early_stop"), pytest.param("batch_synchronous", "april", marks=pytest.mark.campaign)],
)
def test_schedules_that_wait_for_a_train_step_reach_their_last_one(tmp_path, bandit_policy, schedule, rule):
    recipe = slow_learner(bandit_policy, max_train_steps=5, admission={"schedule": schedule})
    summary = train(tmp_path / "run", recipe.model_copy(update={"straggler": Straggler(name=rule)}))
    assert summary["train_steps"] == 5
    promises_hold(tmp_path / "run", summary)
    if schedule == "one_step_off":
        assert max(int(lag) for lag in summary["lag_histogram"]) <= 1


def test_ctrl_c_leaves_no_process_and_the_run_can_be_resumed(tmp_path, bandit_policy):
    recipe, run_dir = slow_learner(bandit_policy, max_train_steps=1000), tmp_path / "run"
    process = start_run(tmp_path, recipe)
    wait_for(lambda: train_step(run_dir) >= 2, process)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 5
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130, err
    assert "--resume" in err
    _, alive = psutil.wait_procs(
        children, timeout=TIMEOUT_SECONDS
    )  # the fork server ends when it sees that its supervisor has
    assert alive == []
    last_step = train_step(run_dir) + 2
    summary = train(run_dir, slow_learner(bandit_policy, max_train_steps=last_step), resume=True)
    assert summary["train_steps"] == last_step
    promises_hold(run_dir, summary)


@pytest.mark.campaign
def test_modules_end_with_a_killed_supervisor(tmp_path, bandit_policy):
    """All five; `test_start_process.py` has the same test of one module, for each way to start it."""
    process = start_run(tmp_path, slow_learner(bandit_policy, max_train_steps=1000))
    wait_for(lambda: train_step(tmp_path / "run") >= 1, process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(children, timeout=TIMEOUT_SECONDS)
    assert alive == []
