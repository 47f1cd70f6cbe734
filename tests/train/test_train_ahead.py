"""Policies that a thread writes while the next batch is trained: order, crashes, failures, lost leases, lag 0."""

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_checkpoint_writer import NanInTheSecondTrainStep
from trainer_runs import ADAPTER, MERGED, ROUNDED, TRAIN, RecipeBuilder, Run, group, same

from quartet.ledger.batches import Batches
from quartet.report.check import check_ledger
from quartet.report.totals import run_totals
from quartet.telemetry.presence import Presence
from quartet.train import policy_writer
from quartet.train.background_write import BackgroundWrite
from quartet.train.trainer import Trainer
from quartet.types import Batch

pytestmark = pytest.mark.slow


class Press:
    """A disk on which no policy becomes whole before `free` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free, self.error, self.most, self._now = threading.Event(), None, 0, 0
        publish = policy_writer.publish_policy

        def slow(*arguments: Any, **options: Any) -> None:
            self._now += 1
            self.most = max(self.most, self._now)
            assert self.free.wait(60)
            if self.error is not None:
                raise self.error
            publish(*arguments, **options)
            self._now -= 1

        monkeypatch.setattr(policy_writer, "publish_policy", slow)


@pytest.fixture
def press(monkeypatch: pytest.MonkeyPatch) -> Iterator[Press]:
    press = Press(monkeypatch)
    yield press
    press.free.set()


class Claims:
    """The batches that trainers claim, with the train step that was committed at each claim. `then` is called after
    each claim of a batch after an uncommitted one, also if it fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[Batch] = []
        self.committed: list[int] = []
        self.then: Callable[[], object] = lambda: None
        claim = Batches.claim

        def recorded(batches: Batches, *arguments: Any, after: Batch | None = None) -> Batch | None:
            try:
                batch = claim(batches, *arguments, after=after)
            finally:
                if after is not None:
                    self.then()
            if batch is not None:
                self.batches.append(batch)
                self.committed.append(batches.train_step())
            return batch

        monkeypatch.setattr(Batches, "claim", recorded)


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch, press: Press) -> Claims:
    """The disk is free after the first claim of a batch after an uncommitted one."""
    claims = Claims(monkeypatch)
    claims.then = press.free.set
    return claims


def feed(run: Run, steps: int = 2) -> None:
    """Groups for so many train steps, whose tokens the first step's start version sampled."""
    for arm in (10, 20, 30)[:steps]:
        run.feed(group(arm), group(arm + 2))


def at_once(tmp_path: Path, run: Run, steps: int = 2) -> Run:
    """The same run by a trainer that commits every step before the next one."""
    other = Run(tmp_path / "at_once", run.recipe)
    feed(other, steps)
    trainer = other.trainer()
    for _ in range(steps):
        assert trainer.train_one()
    return other


def crashed(run: Run) -> Trainer:
    run.forget_trainers()
    return run.trainer()


@pytest.mark.parametrize(
    "method", [{}, MERGED, *(pytest.param(one, marks=pytest.mark.campaign) for one in (ROUNDED, ADAPTER))]
)
def test_a_step_ahead_of_the_files_gives_the_weights_of_one_step_at_a_time(
    tmp_path: Path, recipe: RecipeBuilder, press: Press, claims: Claims, method: dict[str, Any]
) -> None:
    """The second step is claimed while the weights of the first wait for the disk."""
    sections = {"train": TRAIN, "model": {"path": str(tmp_path / "run" / "initial")}} | method
    run = Run(tmp_path / "run", recipe(**sections))
    feed(run, 3)
    trainer = run.trainer()
    assert trainer.train_ahead()
    assert (run.ledger.policies.latest().version, run.ledger.batches.train_step()) == (0, 0)
    assert trainer.train_ahead() and trainer.train_ahead()
    trainer.settle()
    second = claims.batches[1]
    assert (second.train_step, second.start_version, claims.committed[1]) == (2, 1, 0)
    assert [policy.version for policy in run.ledger.policies.live()] == [0, 1, 2, 3]
    assert press.most == 1, "one policy is written at a time"
    other = at_once(tmp_path, run, 3)
    assert all(same(run.weights(version), other.weights(version)) for version in (1, 2, 3))
    assert check_ledger(run.ledger, max_lag=2).findings == []


def test_a_crash_while_a_policy_is_written_loses_and_repeats_nothing(
    tmp_path: Path, recipe: RecipeBuilder, press: Press, claims: Claims
) -> None:
    """The first step is trained and not committed, and the second is claimed, when the trainer dies."""
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    feed(run)
    dead = run.trainer()
    assert dead.train_ahead()
    assert run.ledger.batches.claim("trainer", 2, 1, "mask", 60.0, after=claims.batches[0]) is not None
    again = crashed(run)
    assert (again.version, run.ledger.batches.train_step()) == (0, 0)
    assert again.train_one() and again.train_one()
    assert same(run.weights(2), at_once(tmp_path, run).weights(2))
    totals = run_totals(run.ledger)
    assert (totals.lost, totals.trained_twice) == (0, 0)
    assert check_ledger(run.ledger, max_lag=1).findings == []


@pytest.mark.parametrize("end", [Trainer.train_ahead, Trainer.settle, Trainer.finish])
def test_a_policy_that_cannot_be_written_ends_the_trainer(
    tmp_path: Path, recipe: RecipeBuilder, press: Press, end: Callable[[Trainer], object]
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    feed(run)
    trainer = run.trainer()
    press.error = OSError(errno.ENOSPC, "No space left on device", "model.safetensors")
    assert trainer.train_ahead()
    press.free.set()
    with pytest.raises(OSError, match="No space left"):
        end(trainer)
    press.error = None
    again = crashed(run)
    assert again.version == 0 and again.train_one() and again.train_one()
    assert same(run.weights(2), at_once(tmp_path, run).weights(2))


@pytest.mark.usefixtures("claims")
def test_a_failed_step_leaves_the_policy_that_is_being_written(tmp_path: Path, recipe: RecipeBuilder) -> None:
    terms = {"terms": f"test_checkpoint_writer:{NanInTheSecondTrainStep.__name__}"}
    run = Run(tmp_path / "run", recipe(train=TRAIN, loss=terms))
    feed(run)
    trainer = run.trainer()
    assert trainer.train_ahead()
    assert trainer.train_ahead()
    assert (run.ledger.batches.train_step(), trainer.learner.optimizer_step) == (1, 2)
    assert same(run.weights(1), trainer.learner.model.state_dict())
    assert trainer.train_one() and run.ledger.batches.train_step() == 2


def test_a_lost_lease_undoes_the_step_that_is_written_and_the_one_after_it(
    tmp_path: Path, recipe: RecipeBuilder, press: Press, claims: Claims
) -> None:
    """The data manager takes back the first batch while the second is trained."""
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    feed(run)
    trainer = run.trainer()
    assert trainer.train_ahead()
    claims.then = lambda: None
    update = trainer.learner.update

    def late(*arguments: Any) -> dict[str, float]:
        metrics = update(*arguments)
        run.ledger.batches.release(claims.batches[0])
        press.free.set()
        return metrics

    trainer.learner.update = late
    assert trainer.train_ahead()
    assert (run.ledger.batches.train_step(), trainer.version) == (0, 0)
    assert same(run.weights(0), trainer.learner.model.state_dict())
    trainer.learner.update = update
    assert trainer.train_one() and trainer.train_one()
    assert same(run.weights(2), at_once(tmp_path, run).weights(2))


def test_a_batch_is_committed_in_the_middle_of_the_next_step_once_its_policy_is_whole(
    tmp_path: Path, recipe: RecipeBuilder, press: Press
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    feed(run)
    trainer = run.trainer()
    assert trainer.train_ahead()
    update, steps = trainer.learner.update, []

    def watched(plan: Any, progress: Callable[[], None], witness: Any) -> dict[str, float]:
        progress()
        steps.append(run.ledger.batches.train_step())
        press.free.set()
        while not trainer.writer.has_ended:
            time.sleep(0.01)
        progress()
        steps.append(run.ledger.batches.train_step())
        return update(plan, progress, witness)

    trainer.learner.update = watched
    assert trainer.train_ahead()
    assert steps == [0, 1]
    trainer.settle()
    assert run.ledger.batches.train_step() == 2


def no_space(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


BESIDE_A_COMMIT = {
    "quartet.telemetry.receipts.TrainerReceipts.committing": [pytest.mark.campaign],
    "quartet.ledger.batches.Batches.commit": [],
    "quartet.telemetry.receipts.TrainerReceipts.committed": [pytest.mark.campaign],
    "quartet.train.checkpoint.writer.CheckpointWriter.prune": [],
    "quartet.train.trainer.prune_attempts": [pytest.mark.campaign],
    "quartet.telemetry.record.Recorder.metric": [pytest.mark.campaign],
}
"""Places of an error: the commit itself and one after it; the campaigns try the others."""


@pytest.mark.parametrize("place", [pytest.param(place, marks=marks) for place, marks in BESIDE_A_COMMIT.items()])
def test_an_error_beside_a_commit_is_not_one_of_the_batch_in_training(
    tmp_path: Path, recipe: RecipeBuilder, press: Press, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The first batch is committed in the middle of the second step."""
    run = Run(tmp_path / "run", recipe(train=TRAIN, runtime={"receipts": True}))
    feed(run)
    trainer = run.trainer()
    assert trainer.train_ahead()

    def interrupted(plan: Any, progress: Callable[[], None], witness: Any) -> Any:
        press.free.set()
        while not trainer.writer.has_ended:
            time.sleep(0.01)
        progress()

    trainer.learner.update = interrupted
    with monkeypatch.context() as fault, pytest.raises(OSError, match="No space left"):
        fault.setattr(place, no_space)
        trainer.train_ahead()
    if run.ledger.batches.train_step():
        trainer.settle()
        assert trainer.version == run.ledger.policies.latest().version == 1
    again = run.trainer()
    assert again.version == run.ledger.policies.latest().version
    while run.ledger.batches.train_step() < 2:
        assert again.train_one()
    assert same(run.weights(2), at_once(tmp_path, run).weights(2))
    assert not {"train_step_failed", "batch_quarantined"} & {event.kind for event in run.ledger.events()}
    assert check_ledger(run.ledger, max_lag=1).findings == []


def test_groups_that_become_trainable_while_a_policy_is_written_are_claimed(
    tmp_path: Path, recipe: RecipeBuilder, press: Press, claims: Claims
) -> None:
    """They become so when the trainer reports that it waits for the policy, whose disk is free once the second batch is
    in training."""
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"max_train_steps": 2}))
    feed(run, 1)
    late = [group(20), group(22)]

    class Supervisor:
        def report(self, module: str, **fields: Any) -> None:
            if fields["waiting_for"] == "the files of the policy" and late:
                run.feed(late.pop(), late.pop())

    trainer, claims.then = run.trainer(Supervisor()), lambda: None
    update = trainer.learner.update

    def freeing(*arguments: Any) -> dict[str, float]:
        if len(claims.batches) == 2:
            press.free.set()
        return update(*arguments)

    trainer.learner.update = freeing
    asyncio.run(trainer.run(asyncio.Event()))
    assert claims.committed == [0, 0] and run.ledger.batches.train_step() == 2


@pytest.mark.parametrize("hangs", [False, True])
def test_an_idle_trainer_is_silent_once_the_write_of_its_policy_hangs(hangs: bool) -> None:
    beats: list[str] = []

    class Supervisor:
        def report(self, module: str, **fields: Any) -> None:
            beats.append(fields["waiting_for"])

    write = BackgroundWrite("files", Presence(Supervisor(), "trainer", interval_seconds=0), 0.0 if hangs else 600.0)
    beats.clear()
    write.begin(lambda on_progress: None)
    write.explain(lambda: beats.append("on_progress"))
    assert beats == ([] if hangs else ["files", "on_progress"])


def test_a_lease_lost_before_the_next_claim_is_noticed_there(
    tmp_path: Path, recipe: RecipeBuilder, claims: Claims
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    feed(run)
    trainer = run.trainer()
    assert trainer.train_ahead()
    run.ledger.batches.release(claims.batches[0])
    assert not trainer.train_ahead()
    assert (trainer.version, trainer.learner.optimizer_step, run.ledger.batches.train_step()) == (0, 0, 0)
    assert trainer.train_one() and trainer.train_one()
    assert same(run.weights(2), at_once(tmp_path, run).weights(2))


@pytest.mark.parametrize("max_lag", [0, 1])
def test_only_a_run_that_allows_lag_claims_a_batch_before_the_commit(
    tmp_path: Path, recipe: RecipeBuilder, press: Press, claims: Claims, max_lag: int
) -> None:
    """With lag, the disk is free only after such a claim."""
    train = TRAIN | {"max_train_steps": 3}
    run = Run(tmp_path / "run", recipe(train=train, admission={"max_lag": max_lag}))
    for version in range(3):
        run.feed(group(10, version=version), group(20, version=version))
    if max_lag == 0:
        press.free.set()
    asyncio.run(run.trainer().run(asyncio.Event()))
    assert run.ledger.batches.train_step() == 3
    lead = [batch.train_step - step for batch, step in zip(claims.batches, claims.committed, strict=True)]
    assert lead[:2] == [1, 1 + max_lag] and set(lead) <= {1, 1 + max_lag}
    assert check_ledger(run.ledger, max_lag=max_lag).findings == []
