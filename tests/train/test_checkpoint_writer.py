"""Checkpoints that a thread writes while the next steps are trained: crashes, back-pressure, failures, retention."""

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from trainer_runs import TRAIN, RecipeBuilder, Run, group, same
from transformers import AutoModelForCausalLM

from quartet.config import Recipe
from quartet.ledger.batches import Batches
from quartet.ledger.checkpoints import checkpoint_folder
from quartet.ledger.recovery import checkpoint_progress
from quartet.manager.retention import Retention
from quartet.policy.canary import measure_canary
from quartet.policy.load import load_model
from quartet.policy.weights import cast_copy
from quartet.report.check import check_ledger
from quartet.train import trainer as trainer_module
from quartet.train.checkpoint import writer as checkpoint_writer
from quartet.train.checkpoint.writer import default_interval, delete_folders
from quartet.train.loss.base import LossInput
from quartet.train.loss.ppo_clip import PpoClip
from quartet.train.ranks.base import Ranks
from quartet.train.trainer import Trainer, run_trainer

pytestmark = pytest.mark.slow


class Disk:
    """A disk on which no checkpoint becomes whole before `free` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free, self.begun, self.error = threading.Event(), threading.Event(), None
        self.on_progress: Callable[[], None] | None = None
        write = checkpoint_writer.write_checkpoint

        def slow(*arguments: object, **options: object) -> None:
            self.on_progress = options["on_progress"]
            self.begun.set()
            assert self.free.wait(60)
            if self.error is not None:
                raise self.error
            write(*arguments, **options)

        monkeypatch.setattr(checkpoint_writer, "write_checkpoint", slow)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(monkeypatch)
    yield disk
    disk.free.set()


class FreedByAHeartbeat:
    """The supervisor's side of a trainer: once the trainer is at work, its next heartbeat frees the disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk, self.waited = disk, False

    def report(self, module: str, **fields: object) -> None:
        if self.waited:
            self._disk.free.set()


def train(run: Run, trainer: Trainer, steps: range) -> None:
    for version in steps:
        run.feed(group(10, version=version), group(20, version=version))
        assert trainer.train_one()


def crashed(run: Run) -> Trainer:
    """A trainer that starts after a crash: the disk has what was whole then."""
    run.forget_trainers()
    return run.trainer()


def test_a_crash_before_the_checkpoint_is_whole_goes_back_to_the_one_before(
    tmp_path: Path, recipe: RecipeBuilder, disk: Disk
) -> None:
    """The checkpoint of step 2 is still being written when step 3 is committed; later the one of step 4 is."""
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"train_steps_per_checkpoint": 2}))
    train(run, run.trainer(), range(3))
    third = run.weights(3)
    again = crashed(run)
    assert (again.version, run.ledger.batches.train_step()) == (0, 0)
    disk.free.set()
    assert again.train_one() and again.train_one()
    again.checkpoints.wait(lambda: None)
    disk.free.clear()
    assert again.train_one()
    assert same(run.weights(6), third)
    train(run, again, range(6, 7))
    last = crashed(run)
    assert (last.version, run.ledger.batches.train_step()) == (5, 2)
    assert last.train_one()
    assert same(run.weights(8), third)
    assert check_ledger(run.ledger, max_lag=9).findings == []


def test_retention_keeps_the_policy_that_an_unfinished_checkpoint_needs(
    tmp_path: Path, recipe: RecipeBuilder, disk: Disk
) -> None:
    one = {"keep_policies": 1, "keep_checkpoints": 1, "min_free_megabytes": 1}
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"train_steps_per_checkpoint": 2}, disk=one))
    disk.free.set()
    trainer = run.trainer()
    train(run, trainer, range(2))
    trainer.checkpoints.wait(lambda: None)
    disk.free.clear()
    train(run, trainer, range(2, 5))
    sweep = Retention(run.recipe.disk, run.ledger, run.run_dir).sweep
    assert sweep() is None
    kept = [policy.version for policy in run.ledger.policies.on_disk()]
    assert kept == [0, 2, 4, 5], "of the checkpoint before, of the one being written, and the newest"
    disk.free.set()
    trainer.checkpoints.wait(lambda: None)
    train(run, trainer, range(5, 6))
    trainer.checkpoints.wait(lambda: None)
    assert sweep() is None
    assert crashed(run).version == 6


def test_the_next_checkpoint_waits_for_the_one_before_and_the_trainer_shows_that_it_lives(
    tmp_path: Path, recipe: RecipeBuilder, disk: Disk
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    supervisor = FreedByAHeartbeat(disk)
    trainer = run.trainer(supervisor)
    train(run, trainer, range(1))
    assert not checkpoint_folder(run.run_dir, 1, 1).is_dir()
    supervisor.waited = True
    train(run, trainer, range(1, 2))
    assert checkpoint_folder(run.run_dir, 1, 1).is_dir()


def test_a_trainer_that_fails_leaves_the_other_ranks_after_its_write(
    tmp_path: Path, recipe: RecipeBuilder, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    left_after_write, train_one = list[bool](), Trainer.train_ahead

    @contextmanager
    def joined(recipe: Recipe) -> Iterator[Ranks]:
        try:
            yield Ranks()
        finally:
            left_after_write.append(checkpoint_folder(run.run_dir, 1, 1).is_dir())

    def train_ahead(trainer: Trainer) -> bool:
        if not disk.begun.is_set():
            return train_one(trainer)
        threading.Timer(0.2, disk.free.set).start()
        raise IndexError("beside the write")

    monkeypatch.setattr(trainer_module, "joined_ranks", joined)
    monkeypatch.setattr(Trainer, "train_ahead", train_ahead)
    run.feed(group(10), group(20))
    with pytest.raises(IndexError, match="beside the write"):
        asyncio.run(run_trainer(run.recipe, run.run_dir, asyncio.Event()))
    assert left_after_write == [True]


@pytest.mark.parametrize("hangs", [False, True])
def test_a_trainer_that_waits_for_a_checkpoint_is_silent_once_the_write_hangs(
    tmp_path: Path, recipe: RecipeBuilder, disk: Disk, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    """The clock passes 200 s in steps of 20 s. A trainer that is silent for 50 s is restarted by the supervisor."""
    run, now = Run(tmp_path / "run", recipe(train=TRAIN, runtime={"heartbeat_timeout_seconds": 50})), [1e9]
    beats: list[float] = []
    freed = futures.wait

    class Supervisor:
        def report(self, module: str, **fields: str) -> None:
            if fields["waiting_for"] == "the previous checkpoint":
                beats.append(now[0])

    def wait(writing: list[futures.Future[None]], timeout: float) -> None:
        now[0] += 20
        if not hangs:
            assert disk.on_progress is not None
            disk.on_progress()
        if now[0] > 1e9 + 200:
            disk.free.set()
            freed(writing)

    trainer = run.trainer(Supervisor())
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    train(run, trainer, range(1))
    assert disk.begun.wait(60)
    monkeypatch.setattr(futures, "wait", wait)
    trainer.checkpoints.wait(trainer.presence.beat)
    assert beats[:3] == [1e9, 1e9 + 20, 1e9 + 40]
    assert max(later - earlier for earlier, later in pairwise(beats)) == (180 if hangs else 20)


def test_a_late_trainer_neither_records_nor_deletes_checkpoints(tmp_path: Path, recipe: RecipeBuilder) -> None:
    """A trainer that ends late would delete the checkpoint that its successor is writing."""
    run = Run(tmp_path / "run", recipe(train=TRAIN, disk={"keep_checkpoints": 1}))
    late = run.trainer()
    train(run, late, range(1))
    train(run, run.trainer(), range(1, 2))
    run.written()
    recorded, writing = checkpoint_progress(run.ledger), checkpoint_folder(run.run_dir, 3, 3).with_suffix(".writing")
    writing.mkdir()
    late.checkpoints.finish(1, 1, 1, lambda: None)
    assert writing.is_dir() and recorded == checkpoint_progress(run.ledger)
    late.checkpoints.finish(1, 1, run.ledger.policies.latest().version, lambda: None)
    assert not writing.is_dir() and recorded != checkpoint_progress(run.ledger)


def test_a_checkpoint_that_another_trainer_deletes_at_the_same_time_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    delete_folders([tmp_path / "gone", tmp_path / "there"])
    assert list(tmp_path.iterdir()) == []


def test_a_trainer_that_waits_for_the_other_policies_has_written_its_last_checkpoint(
    tmp_path: Path, recipe: RecipeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"train_steps_per_checkpoint": 2, "max_train_steps": 1}))
    stop, found = asyncio.Event(), []

    class Supervisor:
        def report(self, module: str, **fields: str) -> None:
            if fields["waiting_for"] == "the other policies":
                found.append(checkpoint_folder(run.run_dir, 1, 1).is_dir())
                stop.set()

    trainer = run.trainer(Supervisor())
    run.feed(group(10), group(20))
    monkeypatch.setattr(Batches, "least_train_step", lambda batches: 0)
    asyncio.run(trainer.run(stop))
    assert found == [True]


class NanInTheSecondTrainStep(PpoClip):
    """Two minibatches per train step: the weights have changed when the loss is not finite."""

    calls = 0

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        self.calls += 1
        loss, metrics = super().loss(tokens)
        return loss * (float("nan") if self.calls == 4 else 1.0), metrics


def test_a_failed_step_is_undone_from_the_checkpoint_that_is_being_written(
    tmp_path: Path, recipe: RecipeBuilder, disk: Disk
) -> None:
    terms = {"terms": "test_checkpoint_writer:NanInTheSecondTrainStep"}
    run = Run(tmp_path / "run", recipe(train=TRAIN, loss=terms))
    supervisor = FreedByAHeartbeat(disk)
    trainer = run.trainer(supervisor)
    train(run, trainer, range(1))
    supervisor.waited = True
    train(run, trainer, range(1, 2))
    assert (run.ledger.batches.train_step(), trainer.learner.optimizer_step) == (1, 2)
    assert same(run.weights(1), trainer.learner.model.state_dict())
    assert trainer.train_one() and run.ledger.batches.train_step() == 2


@pytest.mark.parametrize("end", [Trainer.train_one, Trainer.finish])
def test_a_checkpoint_that_cannot_be_written_ends_the_trainer(
    tmp_path: Path, recipe: RecipeBuilder, disk: Disk, end: Callable[[Trainer], object]
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN))
    trainer = run.trainer()
    train(run, trainer, range(1))
    disk.error = OSError(errno.ENOSPC, "No space left on device", "state.safetensors")
    disk.free.set()
    with pytest.raises(OSError, match="No space left"):
        trainer.checkpoints.wait(lambda: None)
    with pytest.raises(OSError, match="No space left"):
        end(trainer)
    disk.error = None
    assert crashed(run).version == 0


def test_rounded_policies_load_everywhere_and_their_canary_is_of_the_rounded_weights(
    tmp_path: Path, recipe: RecipeBuilder
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"publish_dtype": "bfloat16"}, engine={"dtype": "bfloat16"}))
    trainer = run.trainer()
    train(run, trainer, range(1))
    folder = run.ledger.policies.latest().path
    published = run.weights(1)
    assert {weights.dtype for weights in published.values()} == {torch.bfloat16}
    exact = dict(trainer.model.named_parameters())
    assert all(torch.equal(weights, exact[name].bfloat16()) for name, weights in published.items())
    assert not all(torch.equal(weights.float(), exact[name]) for name, weights in published.items())
    assert AutoModelForCausalLM.from_pretrained(folder, dtype="auto").dtype == torch.bfloat16
    assert measure_canary(folder, load_model(Path(folder)))[0] < 1e-5
    assert measure_canary(folder, trainer.model)[0] > 1e-5, "the exact weights are others"
    gap, unexplained = measure_canary(folder, cast_copy(load_model(Path(folder)), torch.bfloat16))
    assert unexplained < 1e-5 < gap, "the trainer scored in the engine's dtype too"


@pytest.mark.parametrize(("megabytes", "interval"), [(0, 1), (8, 1), (200, 1), (201, 2), (8000, 10)])
def test_a_larger_state_is_written_less_often(megabytes: int, interval: int) -> None:
    assert default_interval(megabytes * 10**6) == interval
