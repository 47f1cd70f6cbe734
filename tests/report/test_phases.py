"""In the first and the last seconds of a run its status says which phase that is, and explains every module by it."""

import time
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.bandit import bandit_recipe
from quartet.ledger import Ledger
from quartet.report.panel import panel, plain_line, stopped_panel
from quartet.report.status import ModuleStatus, RunStatus, StatusReader
from quartet.telemetry.presence import Presence
from quartet.types.phase import wait_in

RECIPE = bandit_recipe(Path("policy"))


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger.create(tmp_path)) as ledger:
        ledger.policies.register_initial("policy")
        yield ledger


def status_of(ledger: Ledger) -> RunStatus:
    return StatusReader(ledger.run_dir, ledger, RECIPE).read()


def row(status: RunStatus, module: str) -> ModuleStatus:
    return next(one for one in status.modules if one.module == module)


def shown(renderable) -> str:
    console = Console(width=120, record=True)
    console.print(renderable)
    return console.export_text()


def test_modules_that_have_yet_to_start_are_named(ledger):
    ledger.enter_phase("starting")
    Presence(ledger.modules, "manager", interval_seconds=0).waits(*wait_in("starting", "", ""))
    status = status_of(ledger)
    text = shown(panel(status))
    assert "starting" in text and "waits for the start of all modules" in text
    assert text.count("not started yet") == 4 and row(status, "trainer").silent_seconds == 0
    assert {one.module for one in status.stopped().modules} == {"manager"}, "of a run at rest only who ever spoke"


def test_module_states_from_before_a_resume_are_not_shown(ledger):
    with closing(Ledger.open(ledger.run_dir, clock=lambda: time.time() - 100)) as late:
        Presence(late.modules, "trainer", interval_seconds=0).working("training")
    for phase, told in (("starting", "not started yet"), ("training", ""), ("stopping", "not needed in this phase")):
        ledger.enter_phase(phase)
        status = status_of(ledger)
        assert status.absence(row(status, "trainer")) == told


def test_a_trainer_that_has_just_ended_waits_for_nothing(ledger):
    Presence(ledger.modules, "trainer", interval_seconds=0).waits("4 trainable groups", "rollouts finish")
    for phase, state in (("stopping", ""), ("evaluating after 3", "not needed in this phase")):
        ledger.enter_phase(phase)
        assert status_of(ledger).absence(row(status_of(ledger), "trainer")) == state


@pytest.mark.parametrize("phase", ["starting", "evaluating before", "stopping", "evaluating after 3", "ended"])
def test_outside_of_training_nobody_waits_for_what_only_training_brings(phase):
    waiting_for, ends_when = wait_in(phase, "queued rollouts", "control admits a group")
    assert "queued" not in waiting_for and "control" not in ends_when and waiting_for and ends_when
    assert wait_in("training", "queued rollouts", "control admits a group")[0] == "queued rollouts"


def test_a_module_that_is_not_needed_waits_for_nothing(ledger):
    with closing(Ledger.open(ledger.run_dir, clock=lambda: time.time() - 100)) as late:
        Presence(late.modules, "trainer", interval_seconds=0).waits(
            "4 trainable groups", "rollouts of enough groups finish"
        )
    ledger.enter_phase("evaluating after 3")
    status = status_of(ledger)
    trainer = row(status, "trainer")
    assert (trainer.state, trainer.waiting_for, trainer.ends_when) == ("not needed in this phase", "", "")
    assert "rollouts of enough groups" not in shown(panel(status)) and "trainable" not in plain_line(status)


@pytest.mark.parametrize(
    ("said_in", "now", "waits_for"),
    [
        ("starting", "evaluating before", "the evaluation"),
        ("evaluating before", "training", "the first work of training"),
        ("stopping", "training", "the end of training"),  # said in the last seconds of training
        ("stopping", "evaluating after 6", "the evaluation"),
        ("evaluating after 6", "ended", "the end of the run"),
    ],
)
def test_a_wait_is_for_the_phase_that_is_also_before_the_module_speaks_again(ledger, said_in, now, waits_for):
    worker = Presence(ledger.modules, "worker")
    worker.waits(*wait_in(said_in, "", ""))
    worker.beat(force=True)
    ledger.enter_phase(now)
    assert row(status_of(ledger), "worker").waiting_for == waits_for


def test_interrupted_run_shows_its_phase(ledger):
    ledger.enter_phase("evaluating before")
    assert "interrupted while evaluating before" in shown(stopped_panel(status_of(ledger).stopped()))


@pytest.mark.slow
def test_a_run_goes_through_its_phases_and_trains_only_when_all_modules_are_up(tmp_path, bandit_policy, monkeypatch):
    """Every phase that the ledger was told, with what the modules said then."""
    from quartet.runtime.run import run_recipe

    seen: list[tuple[str, set[str]]] = []

    class Telling(Ledger):
        def enter_phase(self, phase: str) -> None:
            up = {row.module for row in self.modules.all() if row.state != "starting"}
            seen.append((phase, up))
            super().enter_phase(phase)

    monkeypatch.setattr("quartet.runtime.session.Ledger", Telling)
    recipe = bandit_recipe(
        bandit_policy, train={"max_train_steps": 2, "learning_rate": 1e-5}, evaluation={"episodes_per_family": 4}
    )
    began = time.monotonic()
    summary = run_recipe(recipe, tmp_path / "run", resume=False, fresh=False, quiet=True)
    names = [phase for phase, _ in seen]
    assert names == [
        "starting",
        "evaluating before",
        "starting",
        "training",
        "stopping",
        "evaluating after 2",
        "ended",
    ]
    up = dict(seen)
    assert "trainer" not in up["evaluating before"] and {"env", "engine", "worker"} <= up["evaluating before"]
    assert up["training"] == {"env", "engine", "worker", "manager", "trainer"}
    assert 0 < summary["train_seconds"] < time.monotonic() - began
