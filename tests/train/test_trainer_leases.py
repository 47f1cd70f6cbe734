"""Lease of a batch: a trainer that lost it, wakes up late, or waits for a slow disk."""

import os
import threading
import time
from concurrent import futures
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_runs import FULL, TRAIN, RecipeBuilder, Run, group, same

from quartet.errors import LedgerError
from quartet.telemetry.presence import Presence
from quartet.train import policy_writer
from quartet.train.held_batches import HeldBatches

pytestmark = pytest.mark.slow


def test_a_lost_lease_is_refused_and_the_trainer_goes_on(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN, runtime={"heartbeat_timeout_seconds": 1e-6}))

    class Expiring:
        """A heartbeat during which the data manager takes overdue batches back, once."""

        armed = True

        def report(self, module: str, **fields: object) -> None:
            if self.armed:
                self.armed = not run.ledger.batches.expire()

    trainer = run.trainer(Expiring())
    run.feed(group(10), group(20))
    assert trainer.train_one()
    assert run.ledger.batches.train_step() == 0
    assert same(run.weights(0), trainer.learner.model.state_dict())
    assert trainer.train_one()
    assert (run.ledger.batches.train_step(), trainer.version) == (1, 1)


def test_a_trainer_keeps_its_batch_as_long_as_the_supervisor_may_let_it_live_without_a_heartbeat(
    tmp_path: Path, recipe: RecipeBuilder
) -> None:
    """It waits for a processor. With a shorter lease it would train the batch again and again."""
    now = [1e9]
    run = Run(tmp_path / "run", recipe(train=TRAIN), clock=lambda: now[0])
    run.feed(group(10), group(20))
    assert HeldBatches(run.recipe, run.ledger, Presence(run.ledger.modules, "trainer")).claim(after=None)
    now[0] += run.recipe.runtime.longest_silence_seconds - 1
    assert run.ledger.batches.expire() == 0
    now[0] += 2
    assert run.ledger.batches.expire() == 1


def test_a_trainer_that_wakes_up_late_touches_nothing_of_its_successor(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped with a computed step, it writes its files when another one has already committed the same step."""
    late, successor = run.trainer(), run.trainer()
    run.feed(group(10), group(20), group(30), group(12))
    committed: dict[str, torch.Tensor] = {}

    def stopped_before_it_writes(*arguments: Any) -> None:
        assert successor.train_one()
        committed.update(run.weights(1))
        with torch.no_grad():
            next(late.learner.model.parameters()).add_(1.0)
        give_weights(*arguments)

    give_weights = late.learner.give_weights
    monkeypatch.setattr(late.learner, "give_weights", stopped_before_it_writes)
    with pytest.raises(LedgerError, match="version 1 is the newest in the ledger, but this trainer is at version 0"):
        late.train_one()
    assert (run.ledger.batches.train_step(), successor.version) == (1, 1)
    assert same(run.weights(1), committed)
    assert successor.train_one()  # nothing of it was rolled back
    assert run.trainer().version == 2


def test_a_late_trainer_whose_files_were_tidied_away_is_told_why(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    late, successor = run.trainer(), run.trainer()
    run.feed(group(10), group(20))

    def overtaken(model: object, tokenizer: object, folder: Path, branches: object, **options: object) -> None:
        raise FileNotFoundError(f"{folder}.writing")

    with monkeypatch.context() as deleted:
        deleted.setattr(policy_writer, "publish_policy", overtaken)
        assert late.train_ahead()
        while not late.writer.has_ended:
            time.sleep(0.01)
    assert successor.train_one()
    with pytest.raises(LedgerError, match="another trainer has committed"):
        late.settle()
    assert (run.ledger.batches.train_step(), successor.version) == (1, 1)


def test_a_slow_disk_is_progress_and_the_batch_is_kept(
    tmp_path: Path, recipe: RecipeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sync takes 20 s: all of them longer than the supervisor waits, each of them not so long."""
    now, fsync, beats = [1e9], os.fsync, [1e9]
    synced, seen = threading.Semaphore(0), threading.Semaphore(0)

    def slow(descriptor: int) -> None:
        fsync(descriptor)
        if "policy" in threading.current_thread().name:  # nothing waits for a checkpoint
            now[0] += 20.0
            synced.release()
            assert seen.acquire(timeout=60)

    def wait(writing: list[futures.Future[None]], timeout: float) -> None:
        while not synced.acquire(timeout=0.01):
            if writing[0].done():
                return
        run.ledger.batches.expire()  # as the data manager does all the time
        seen.release()

    class Supervisor:
        def report(self, module: str, **fields: object) -> None:
            beats.append(now[0])

    timeout = {"heartbeat_timeout_seconds": 50}
    run = Run(tmp_path / "run", recipe(train=TRAIN, ledger=FULL, runtime=timeout), clock=lambda: now[0])
    trainer = run.trainer(Supervisor())
    run.feed(group(10), group(20))
    monkeypatch.setattr(os, "fsync", slow)
    monkeypatch.setattr(futures, "wait", wait)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert trainer.train_one()
    assert run.ledger.batches.train_step() == 1
    assert now[0] - 1e9 > 100
    assert max(later - earlier for earlier, later in pairwise([*beats, now[0]])) < 50
