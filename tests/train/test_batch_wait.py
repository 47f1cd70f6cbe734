"""Waits of a trainer for a batch: their explanation, and the end of a starved or solved run."""

import asyncio
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from trainer_runs import TRAIN, RecipeBuilder, Run, equal_group, group

from quartet.errors import StarvedError
from quartet.report.totals import run_totals
from quartet.runtime.run import starvation_advice
from quartet.train.starvation import LEAST_SOLVED_GROUPS, reason_without_batch, starvation
from quartet.train.trainer import run_trainer
from quartet.types import ACTIONS_LEFT, GENERATED, RolloutPlan, Status
from quartet.types.plan import Root

pytestmark = pytest.mark.slow


def test_trainer_without_enough_groups_reports_its_wait(run: Run) -> None:
    trainer = run.trainer()
    run.feed(group(10))
    assert not trainer.train_one()
    trainer.wait.explain()
    (row,) = run.ledger.modules.all()
    assert (row.state, row.waiting_for) == ("waiting", "2 trainable groups")
    assert row.ends_when


def test_a_held_back_policy_says_what_it_waits_for_and_is_not_starving(tmp_path: Path, recipe: RecipeBuilder) -> None:
    admission = {"on_late": "wait", "max_lag": 1}
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"starved_timeout_seconds": 1e-6}, admission=admission))
    trainer = run.trainer()
    run.feed(group(10), group(20))
    assert trainer.train_one()
    run.ledger.groups.admit(RolloutPlan(task=group(10)[0].task, num_rollouts=1, max_turns=3))  # due later
    (lease,) = run.ledger.rollouts.claim("worker", 1, 60)
    for version in (1, 2):
        run.feed(group(10, version=version), group(20, version=version))
    assert trainer.train_one()  # as old as it, which may be in the next one too
    assert not trainer.train_one()
    trainer.wait.explain()
    (row,) = run.ledger.modules.all()
    assert row.waiting_for == "unfinished groups that the next policy would make too old"
    assert row.ends_when.startswith("1 of them end, at 180 s")
    run.ledger.groups.close(lease.group_id)
    run.ledger.groups.drop(lease.group_id, "too_few_countable")
    assert trainer.train_one()
    assert run_totals(run.ledger).held_back_seconds > 0


def test_time_without_a_batch_to_hold_back_is_not_counted(tmp_path: Path, recipe: RecipeBuilder) -> None:
    """Another trainer takes the groups for a while: when they are back, nothing holds them back any more."""
    run = Run(tmp_path / "run", recipe(train=TRAIN, admission={"on_late": "wait", "max_lag": 0}))
    trainer = run.trainer()
    straggler = run.ledger.groups.admit(RolloutPlan(task=group(10)[0].task, num_rollouts=1, max_turns=3))
    run.ledger.rollouts.claim("worker", 1, 60)
    run.feed(group(10, version=1), group(20, version=1))
    assert not trainer.train_one()
    trainer.wait.explain()
    batch = run.ledger.batches.claim("another", 2, 1, "wait", 60)
    assert batch is not None
    trainer.wait.explain()
    run.ledger.groups.close(straggler)
    run.ledger.groups.drop(straggler, "too_few_countable")
    run.ledger.batches.release(batch)
    assert trainer.train_one()
    assert run_totals(run.ledger).held_back_seconds == 0


async def test_starving_stops_the_run_with_an_explanation(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"starved_timeout_seconds": 1e-6}))
    with pytest.raises(StarvedError, match="starved: fewer than 2 trainable groups"):
        await run_trainer(run.recipe, run.run_dir, asyncio.Event())
    assert (run.ledger.stop_reason() or "").startswith("starved")


@pytest.mark.parametrize(
    ("solved", "failed", "without_result"),
    [(LEAST_SOLVED_GROUPS, 0, 0), (LEAST_SOLVED_GROUPS - 1, 0, 0), (LEAST_SOLVED_GROUPS, 1, 0), (20, 0, 1)],
)
def test_a_run_ends_as_solved_only_if_many_groups_were_dropped_and_none_has_a_failure(
    tmp_path: Path, recipe: RecipeBuilder, solved: int, failed: int, without_result: int
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    run.ledger.enter_phase("training")
    for reward in [1.0] * solved + [0.0] * failed:
        run.drop(equal_group(reward))
    for _ in range(without_result):
        run.drop([])
    reason = reason_without_batch(run.ledger, "no batch")
    if failed or without_result or solved < LEAST_SOLVED_GROUPS:
        assert reason.startswith("starved: no batch; since training began;")
    else:
        assert reason == (
            "solved: all rollouts succeeded in the 16 groups dropped since training began; no batch; "
            "training rollouts ended: 48 completed"
        )


@pytest.mark.parametrize("params", [{ACTIONS_LEFT: 1}, {GENERATED: 1}])
def test_easier_forms_of_tasks_do_not_end_a_run_as_solved(
    tmp_path: Path, recipe: RecipeBuilder, params: dict[str, int]
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    run.ledger.enter_phase("training")
    for _ in range(LEAST_SOLVED_GROUPS):
        run.drop(equal_group(1.0))
    run.drop(equal_group(1.0), params=params)
    assert reason_without_batch(run.ledger, "no batch").startswith("starved: no batch")


def test_guided_rollouts_do_not_end_a_run_as_solved(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    run.ledger.enter_phase("training")
    for _ in range(LEAST_SOLVED_GROUPS):
        run.drop(equal_group(1.0))
    run.drop([*equal_group(1.0), *equal_group(1.0)], more=[Root(guided=True)] * 3)
    assert reason_without_batch(run.ledger, "no batch").startswith("starved: no batch")


def test_a_group_that_hangs_while_others_end_leaves_open_whether_a_run_is_solved(
    tmp_path: Path, recipe: RecipeBuilder
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    run.ledger.enter_phase("training")
    plan = RolloutPlan(task=group(10)[0].task, num_rollouts=1, max_turns=3)
    hung = run.ledger.groups.admit(plan)
    run.ledger.rollouts.claim("worker", 1, 60)
    for _ in range(LEAST_SOLVED_GROUPS):
        run.drop(equal_group(1.0))
    assert reason_without_batch(run.ledger, "no batch").startswith("starved: no batch")
    run.ledger.groups.close(hung)
    run.ledger.groups.drop(hung, "equal_rewards")
    assert run.ledger.statistics.since_last_commit().overtaken == 0
    run.ledger.groups.admit(plan)  # under way, as rollouts are at the end of any run
    assert run.ledger.statistics.since_last_commit().overtaken == 0


def test_a_resumed_run_counts_no_group_from_before_its_resume(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    run.ledger.enter_phase("training")
    run.feed(group(10), group(20))
    trainer = run.trainer()
    assert trainer.train_one()
    run.written()
    run.ledger.policies.mark_settled(1, serving=1)
    for _ in range(LEAST_SOLVED_GROUPS):
        run.drop(equal_group(1.0))
    assert "dropped since train step 1; no batch" in reason_without_batch(run.ledger, "no batch")
    run.ledger.enter_phase("training")
    assert reason_without_batch(run.ledger, "no batch").startswith(
        "starved: no batch; since the resume after train step 1; 0 groups were judged and 0 kept"
    )


def test_a_solved_run_is_stopped_without_an_error(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"starved_timeout_seconds": 1e-6}))
    run.ledger.enter_phase("training")
    for _ in range(LEAST_SOLVED_GROUPS):
        run.drop(equal_group(1.0))
    run.trainer().wait.explain()
    assert (run.ledger.stop_reason() or "").startswith("solved: ")


def test_a_run_that_starves_since_the_engine_rejects_the_policy_says_so(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    run.feed(group(10), group(20))
    trainer = run.trainer()
    run.ledger.policies.mark_settled(0, serving=0)
    assert trainer.train_one()
    run.written()
    run.ledger.event("policy_refused", module="engine", policy="other", version=1, error="another policy")
    open_at_the_end = {"training_ended": 8}
    assert starvation_advice(run.run_dir, open_at_the_end).startswith("no filter dropped a group")
    dropped = open_at_the_end | {"equal_rewards": 3}
    assert starvation_advice(run.run_dir, dropped).startswith("most groups were dropped for equal_rewards")
    run.ledger.event("policy_refused", module="engine", policy="main", version=1, error="gap of 0.3 nats")
    assert starvation(run.ledger, "no batch").endswith("train steps from the served to the newest policy: 1")
    assert starvation_advice(run.run_dir, {"equal_rewards": 3}).startswith(
        "the engine rejected the newest policy: gap of"
    )
    run.ledger.policies.mark_settled(1, serving=1)
    assert "train steps from" not in starvation(run.ledger, "no batch")


def test_a_run_that_starves_since_rollouts_fail_names_the_newest_error(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    failed = [
        replace(one, status=status, error=error) for one, (status, error) in zip(equal_group(0.0), ENDS, strict=True)
    ]
    run.drop(failed)
    advice = starvation_advice(run.run_dir, {"too_few_countable": 3})
    assert "the newest error is error_env: no browser; check the statuses" in advice
    assert "no browser" not in starvation_advice(run.run_dir, {"equal_rewards": 3})


ENDS = [(Status.ERROR_ENV, "no display"), (Status.ERROR_ENV, "no browser"), (Status.CANCELLED, "recalled")]
"""Statuses and errors of three rollouts, oldest first."""


def test_no_starvation_before_the_training_phase(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"starved_timeout_seconds": 1e-6}))
    trainer = run.trainer()
    for phase, waiting_for in (("evaluating before", "the evaluation"), ("starting", "the start of all modules")):
        run.ledger.enter_phase(phase)
        trainer.wait.explain()
        (row,) = run.ledger.modules.all()
        assert (row.state, row.waiting_for) == ("waiting", waiting_for)
    assert run.ledger.stop_reason() is None
    run.ledger.enter_phase("training")
    with pytest.raises(StarvedError):
        trainer.wait.explain()


def test_time_before_the_training_phase_does_not_count_as_starvation(
    tmp_path: Path, recipe: RecipeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"starved_timeout_seconds": 300}))
    trainer, now = run.trainer(), time.monotonic()
    run.ledger.enter_phase("starting")
    for seconds, phase in ((400, "starting"), (600, "training")):
        monkeypatch.setattr(time, "monotonic", lambda passed=seconds: now + passed)
        run.ledger.enter_phase(phase)
        trainer.wait.explain()
    assert run.ledger.stop_reason() is None


def test_after_the_stop_a_trainer_waits_for_the_end_and_is_not_starving(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"starved_timeout_seconds": 1e-6}))
    trainer = run.trainer()
    run.ledger.request_stop("enough")
    trainer.wait.explain()
    (row,) = run.ledger.modules.all()
    assert (row.waiting_for, row.ends_when) == ("the end of training", "the trainer has ended")
    assert run.ledger.stop_reason() == "enough"
