"""A batch that cannot be trained: it is tried again, then its bad groups are dropped for good, and the run goes on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from tiny_batches import VOCAB, make_call, make_trajectory
from trainer_runs import TRAIN, RecipeBuilder, Run, group, same

from quartet.errors import UntrainableError
from quartet.report.alarms import read_alarms
from quartet.report.check import check_ledger
from quartet.report.status import StatusReader
from quartet.report.totals import run_totals
from quartet.train import setback, train_batch
from quartet.train.loss.base import LossInput
from quartet.train.loss.ppo_clip import PpoClip
from quartet.train.step import Learner
from quartet.train.trainer import Trainer, run_trainer
from quartet.types import Batch, Purpose, ReplayRule, Trajectory

pytestmark = pytest.mark.slow

Groups = list[list[Trajectory]]
MARK = -2.75
"""Recorded log-prob of a token of the group that cannot be trained."""


@pytest.fixture
def run(tmp_path: Path, recipe: RecipeBuilder) -> Run:
    return Run(tmp_path / "run", recipe(train=TRAIN))


def poisoned(version: int = 0) -> list[Trajectory]:
    """A group with a token that the model does not know: IndexError."""
    call = make_call([1, 2], [3, 4 * VOCAB], version=version)
    return [make_trajectory([call], reward) for reward in (0.0, 1.0)]


class BrokenLoss(PpoClip):
    """A user's own loss with a mistake in it."""

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        return tokens.logprobs_T[:, 0], {}


def train(trainer: Trainer) -> None:
    while trainer.train_one():
        """Until no batch is left."""


def kinds(run: Run) -> list[str]:
    return [event.kind for event in reversed(run.ledger.events())]


@pytest.mark.parametrize("place", [0, 1, 3])
def test_the_bad_group_is_dropped_and_the_others_are_trained_as_if_it_had_not_been(
    run: Run, tmp_path: Path, recipe: RecipeBuilder, place: int
) -> None:
    sound = [group(10), group(20), group(30), group(12)]
    run.feed(*sound[:place], poisoned(), *sound[place:])
    train(run.trainer())
    clean = Run(tmp_path / "clean", recipe(train=TRAIN))
    clean.feed(*sound)
    train(clean.trainer())
    assert run.ledger.batches.train_step() == clean.ledger.batches.train_step() == 2
    assert same(run.weights(2), clean.weights(2))
    assert run_totals(run.ledger).dropped_by_reason == {"quarantined": 1}
    assert kinds(run).count("train_step_failed") == run.recipe.train.max_batch_attempts
    assert check_ledger(run.ledger).findings == []


class FailsAtMark(PpoClip):
    """A loss that fails for one group."""

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        if (tokens.rollout_logprobs_T == MARK).any():
            raise IndexError("the marked group")
        return super().loss(tokens)


@pytest.mark.parametrize("place", [0, 1])
def test_the_search_for_the_bad_group_is_made_under_the_weights_that_failed(
    tmp_path: Path, recipe: RecipeBuilder, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """In one order of the groups the other one is trained first, and the step is undone to an old checkpoint."""
    sparse = TRAIN | {"minibatches": 2, "train_steps_per_checkpoint": 9}
    run = Run(tmp_path / "run", recipe(train=sparse, loss={"terms": "test_quarantine:FailsAtMark"}))
    trainer, searched = run.trainer(), list[dict[str, torch.Tensor]]()

    def rehearse(batch: Batch, learner: Learner, *more: Any) -> None:
        searched.append({name: weights.detach().clone() for name, weights in learner.model.named_parameters()})
        train_batch.rehearse(batch, learner, *more)

    monkeypatch.setattr(setback, "rehearse", rehearse)
    run.feed(group(10), group(20))
    assert trainer.train_one()
    groups = [group(12, version=1)]
    groups.insert(place, group(30, version=1, logprob=MARK))
    run.feed(*groups)
    initial = run.weights(0)
    while run_totals(run.ledger).dropped_by_reason == {}:
        assert trainer.train_one()
    assert run_totals(run.ledger).dropped_by_reason == {"quarantined": 1}
    assert len(searched) == 2 and not any(same(initial, weights) for weights in searched)


def test_the_record_names_batch_groups_tasks_and_error(run: Run) -> None:
    run.feed(group(10), poisoned())
    train(run.trainer())
    (record,) = [event.fields for event in run.ledger.events() if event.kind == "batch_quarantined"]
    assert (record["groups"], record["of_groups"], record["train_step"]) == ([2], 2, 1)
    assert record["tasks"] == [poisoned()[0].task.key]
    assert "IndexError: index out of range" in record["error"]


def test_status_and_an_alarm_show_it(run: Run) -> None:
    run.feed(group(10), poisoned())
    train(run.trainer())
    status = StatusReader(run.run_dir, run.ledger, run.recipe).read()
    assert status.quarantined_groups == 1
    alarms = {alarm.kind: alarm for alarm in read_alarms(run.run_dir, run.ledger, run.recipe, status)}
    assert "IndexError" in alarms["quarantined"].what


def test_a_trainer_that_is_started_again_does_not_meet_it(run: Run) -> None:
    run.feed(group(10), poisoned())
    train(run.trainer())
    run.feed(group(20))
    again = run.trainer()
    before = kinds(run)
    train(again)
    assert run.ledger.batches.train_step() == 1
    assert kinds(run) == before


def test_attempts_are_counted_over_restarts(run: Run) -> None:
    run.feed(group(10), poisoned())
    for _ in range(run.recipe.train.max_batch_attempts):
        assert run.trainer().train_one()
    assert run_totals(run.ledger).dropped_by_reason == {"quarantined": 1}


def test_a_search_that_ended_the_process_is_not_made_again(run: Run) -> None:
    """What the ledger knows then: more failures than attempts. All groups of the batch go."""
    run.feed(group(10), poisoned())
    for _ in range(run.recipe.train.max_batch_attempts):
        batch = run.ledger.batches.claim("died", 2, 2, "mask", 60)
        assert batch is not None
        run.ledger.batches.fail(batch, "killed")
    assert run.trainer().train_one()
    assert run_totals(run.ledger).dropped_by_reason == {"quarantined": 2}


def test_one_failure_is_forgotten_with_the_next_success(run: Run) -> None:
    run.feed(group(10), group(20))
    batch = run.ledger.batches.claim("died", 2, 2, "mask", 60)
    assert batch is not None and run.ledger.batches.fail(batch, "bad luck") == 1
    train(run.trainer())
    assert run.ledger.batches.train_step() == 1
    assert "batch_quarantined" not in kinds(run)


def test_a_fault_that_meets_every_batch_ends_the_run(run: Run, recipe: RecipeBuilder) -> None:
    mended, run.recipe = run.recipe, recipe(train=TRAIN, loss={"terms": "test_quarantine:BrokenLoss"})
    run.feed(*(group(10 + number) for number in range(10)))
    with pytest.raises(UntrainableError, match=r"3 batches in a row could not be trained; .*IndexError") as caught:
        train(run.trainer())
    assert caught.value.exit_code == 6 and "logs/trainer.jsonl" in caught.value.advice
    assert run_totals(run.ledger).groups == {"dropped": 6, "trainable": 4}
    with pytest.raises(UntrainableError, match="4 batches in a row"):
        asyncio.run(run_trainer(run.recipe, run.run_dir, asyncio.Event()))
    run.recipe = mended
    run.ledger.clear_stop()
    assert run.trainer().train_one()
    assert run.ledger.batches.train_step() == 1


def test_a_committed_step_between_them_ends_the_row(run: Run) -> None:
    trainer = run.trainer()
    for version in range(5):
        run.feed(group(10, version=version), poisoned(version), group(20, version=version))
        train(trainer)
    assert run.ledger.batches.train_step() == 5
    assert run_totals(run.ledger).dropped_by_reason == {"quarantined": 5}


def test_a_step_that_is_trained_again_after_a_roll_back_does_not_end_the_row(run: Run) -> None:
    """With sparse checkpoints a fault at train step 3 would be met for ever."""
    streaks: list[int] = []
    for train_step in (3, 2, 3, 4):
        run.feed(group(10), group(20))
        batch = run.ledger.batches.claim("trainer", 2, 2, "mask", 60)
        assert batch is not None
        run.ledger.batches.release(batch)
        numbered = replace(batch, train_step=train_step)
        streaks.append(run.ledger.batches.quarantine(numbered, [group.group_id for group in batch.groups], "x"))
    assert streaks == [1, 2, 3, 1]


def test_a_stored_success_of_a_quarantined_group_leaves_the_pool(run: Run) -> None:
    stored, failed = poisoned()[1], [make_trajectory([make_call([1, 2], [3])], 0.0) for _ in range(2)]
    task = stored.task
    run.ledger.pool.store_demonstrations([stored], 8)
    (demonstrated,) = run.ledger.pool.usable(task, 8)
    run.feed(group(10))
    run.feed(failed, replayed={demonstrated: ReplayRule.RECOMPUTE})
    train(run.trainer())
    assert run_totals(run.ledger).dropped_by_reason == {"quarantined": 1}
    assert run.ledger.pool.usable(task, 8) == []
    assert run.ledger.pool.load(demonstrated, {Purpose.DEMONSTRATION: ReplayRule.RECOMPUTE}) is not None


def claim_again(run: Run, lost: Batch) -> Batch:
    """Another trainer takes the groups of a batch whose lease has ended."""
    run.ledger.batches.release(lost)
    batch = run.ledger.batches.claim("another", 2, 2, "mask", 60)
    assert batch is not None
    return batch


def test_a_trainer_that_lost_its_batch_counts_no_failure(run: Run) -> None:
    run.feed(group(10), group(20))
    lost = run.ledger.batches.claim("stopped", 2, 2, "mask", 60)
    assert lost is not None
    batch = claim_again(run, lost)
    assert run.ledger.batches.fail(lost, "woke up late") == 0
    assert run.ledger.batches.fail(batch, "first failure") == 1


def test_groups_that_another_trainer_holds_or_has_trained_are_not_quarantined(run: Run) -> None:
    trainer = run.trainer()
    run.feed(group(10), group(20))
    lost = run.ledger.batches.claim("stopped", 2, 2, "mask", 60)
    assert lost is not None
    ids = [group.group_id for group in lost.groups]
    batch = claim_again(run, lost)
    run.ledger.batches.quarantine(lost, ids, "while it is held")
    assert run_totals(run.ledger).groups == {"claimed": 2}
    run.ledger.batches.release(batch)
    train(trainer)
    run.ledger.batches.quarantine(lost, ids, "after the commit")
    assert run_totals(run.ledger).groups == {"trained": 2}
    assert run.ledger.batches.quarantined_groups() == 0
    assert check_ledger(run.ledger).findings == []
