"""Trainer loop: claim a batch, train on it, publish the policy, commit.

The policy is written to disk before a single ledger transaction commits it. If a trainer dies at any point before that,
its batch becomes trainable again. Every committed version can be loaded. Threads write the policy and the checkpoint of
a step while `Trainer.run` trains on the next batch; with `admission.max_lag = 0` the next batch waits for the commit.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import torch

from quartet.config import Recipe
from quartet.errors import LeaseLostError, LedgerError
from quartet.files.computing import computing
from quartet.ledger import Ledger
from quartet.ledger.checkpoints import RecoveryPoint
from quartet.ledger.policy_folders import policies_root
from quartet.policy.digest import weights_digest
from quartet.policy.load import LoadedPolicy
from quartet.policy.lora import policy_weights
from quartet.telemetry.presence import Presence
from quartet.telemetry.receipts import TrainerReceipts
from quartet.telemetry.record import Recorder
from quartet.telemetry.token_values import write_token_values
from quartet.train.assign import credits_of
from quartet.train.batch_wait import BatchWait
from quartet.train.checkpoint.files import load_state
from quartet.train.checkpoint.recover import roll_back_to_whole
from quartet.train.checkpoint.writer import CheckpointWriter
from quartet.train.frozen import load_frozen
from quartet.train.gpu.warm_up import warm_up
from quartet.train.held_batches import HeldBatches
from quartet.train.metrics.batch import PhaseTimer, batch_metrics
from quartet.train.packing.sight import sight_of
from quartet.train.policy_writer import PolicyWriter, Publication, copy_to_publish
from quartet.train.publish import policy_folder, prune_attempts, published_dtype
from quartet.train.ranks.base import RankLostError, Ranks
from quartet.train.ranks.follower import Follower
from quartet.train.ranks.fsdp import joined_ranks
from quartet.train.ranks.orders import Restore
from quartet.train.setback import FailedStepError, Setback, arithmetic_of
from quartet.train.starting_policy import load_starting_policy
from quartet.train.step import Learner
from quartet.train.token_record import TokenRecord
from quartet.train.train_batch import train_batch
from quartet.types import Batch


class Trainer:
    """Trainer of one policy. If a policy has two trainers, the second finds no batch to claim."""

    def __init__(
        self,
        recipe: Recipe,
        ledger: Ledger,
        run_dir: Path,
        recorder: Recorder,
        presence: Presence,
        ranks: Ranks | None = None,
    ) -> None:
        """Restore the newest undamaged train step. With several `ranks`, this process is rank 0."""
        self.recipe, self.ledger, self.run_dir = recipe, ledger, run_dir
        self.recorder, self.presence = recorder, presence
        self._credits = credits_of(recipe)
        point, loaded = self._newest_whole()
        self.model = loaded.model
        """The policy's weights after the last train step, whole and on the CPU. The learner has its own."""
        initial = Path(recipe.policy_sources[ledger.policy].source)
        frozen = load_frozen(recipe, self._credits, initial, on_progress=presence.beat)
        # The weights of several ranks are sharded copies.
        own = copy_to_publish(self.model, recipe) if ranks is None or ranks.size == 1 else self.model
        self.learner = Learner(own, recipe, frozen, sight_of(loaded.pictures, ledger, recipe), ranks)
        if self.learner.model.device.type == "cuda":
            with presence.waiting("the first passes on the GPU", "kernels are compiled"):
                warm_up(self.learner, presence.beat)
        self.writer = PolicyWriter(ledger, recipe, loaded, recorder, presence)
        self.checkpoints = CheckpointWriter(ledger, recipe, self.learner, recorder, presence)
        self._setback = Setback(recipe, ledger, self.learner, self._credits, presence)
        self._receipts = TrainerReceipts(
            run_dir,
            ledger.policy,
            lambda: weights_digest(policy_weights(self.model), published_dtype(recipe)),
            enabled=recipe.runtime.receipts,
        )
        self._held = HeldBatches(recipe, ledger, presence)
        self._publication: Publication | None = None
        self.wait = BatchWait(recipe, ledger, presence)
        self._committed: tuple[int, int] | None = None  # train step and batch id of the last commit, until `finish`
        self._restore_optimizer(point)

    async def run(self, stop: asyncio.Event) -> None:
        """Train until `stop` is set or all trained policies have reached `train.max_train_steps`.

        Raise `StarvedError` if no batch becomes trainable within `train.starved_timeout_seconds`.
        """
        most = self.recipe.train.max_train_steps
        train = self.train_ahead if self.recipe.admission.max_lag else self.train_one
        with self.ledger.notifier.subscribe("trainer") as notifications:
            while not stop.is_set() and self.ledger.batches.least_train_step() < most:
                if self.ledger.batches.train_step() >= most:
                    self.finish()
                    self.presence.waits("the other policies", f"they reach train.max_train_steps = {most}")
                    await notifications.wait(stop)
                elif train():
                    await asyncio.sleep(0)
                elif self._publication is not None:
                    self._keep_publication()
                    await notifications.wait(stop)
                else:
                    self.wait.explain()
                    await notifications.wait(stop)
        self.finish()
        if not stop.is_set():
            self.ledger.request_stop(f"train.max_train_steps = {self.recipe.train.max_train_steps} reached")

    def train_one(self) -> bool:
        """Run one train step and commit it; return False if the ledger has no batch to claim."""
        trained = self.train_ahead()
        self.settle()
        return trained

    def train_ahead(self) -> bool:
        """Train on the next batch, and begin to write its policy; return False if there is no batch to claim.

        The policy of the batch before may still be being written. That batch is committed as soon as it is complete,
        and before the policy of this batch is written.

        A failed step's changes to the weights are undone (`_undo`); `Setback` decides what happens to its batch.
        """
        self.checkpoints.collect()  # raises the error of a failed write
        if self._publication is not None and self.writer.has_ended:
            self.settle()
        start = time.time()
        batch = self._claim()
        if batch is None:
            return False
        phases = PhaseTimer(self.recorder, batch.train_step)
        phases.passed("claim", start)
        phases.seconds["held_back_seconds"] = self.wait.end()
        self.presence.working("training")
        try:
            with computing(self.run_dir, self.presence.module), self.recorder.span("train_step", trace=phases.trace):
                self._train(batch, phases)
        except FailedStepError as error:
            self.settle()
            self._held.remove(batch)
            self._setback.settle(batch, error, self._undo)
        except LeaseLostError as error:
            self._give_up(error)
        except RankLostError:
            self.settle()  # this rank alone writes the policy of the step before
            raise
        self.wait.begin()
        return True

    def settle(self) -> None:
        """Wait until the policy that is being written is complete, if there is one, and commit its batch.

        Raise the error of a write that failed.
        """
        try:
            self._commit_publication(self._held.keep)
        except LeaseLostError as error:
            self._give_up(error)

    def finish(self) -> None:
        """Commit the last train step, and write its checkpoint if it has none yet, so that a resume starts from
        there."""
        self.settle()
        if self._committed is not None and self.ledger.policies.latest().version == self.version:
            self.checkpoints.finish(*self._committed, self.version, self.presence.beat)
            self._committed = None

    def restore(self) -> None:
        """Roll back to the last train step that has a checkpoint: weights, version and optimizer state."""
        self.checkpoints.wait(self.presence.beat)
        point, loaded = self._newest_whole()
        self.learner.take_weights(loaded.model, self.presence.beat)
        self._restore_optimizer(point)

    def _newest_whole(self) -> tuple[RecoveryPoint, LoadedPolicy]:
        beat = self.presence.beat
        load = partial(load_starting_policy, self.recipe, self.ledger.policy, on_progress=beat)
        return roll_back_to_whole(self.ledger, self.recipe, load, on_progress=beat)

    def _restore_optimizer(self, point: RecoveryPoint) -> None:
        self.version, self._committed = point.policy.version, None
        self.checkpoints.restored(point.train_step)
        with self.learner.ranks.together(Restore.of(point, self.run_dir)):
            load_state(point.checkpoint, self.learner, on_progress=self.presence.beat)
        self._optimizer_step = self.learner.optimizer_step
        if self.recipe.runtime.receipts:
            self.learner.give_weights(self.model)
        if point.checkpoint is not None:
            self.ledger.event("trainer_restored", train_step=point.train_step, version=self.version)
        self._receipts.restored(point.policy)

    def _claim(self) -> Batch | None:
        """Claim the next batch, which starts from the weights that are being published, if any."""
        before = self._publication
        train_step = before.batch.train_step if before else self.ledger.batches.train_step()
        if train_step >= self.recipe.train.max_train_steps:
            return None
        try:
            batch = self._held.claim(after=before.batch if before else None)
        except LeaseLostError as error:
            self._give_up(error)
            return None
        if batch is not None and batch.start_version != (before.version if before else self.version):
            self.ledger.batches.release(batch)
            raise self._succeeded(batch.start_version)
        return batch

    def _succeeded(self, version: int) -> LedgerError:
        return LedgerError(
            f"version {version} is the newest in the ledger, but this trainer is at version {self.version}",
            "another trainer has committed: run only one trainer per policy, then restart this one",
        )

    def _progress(self) -> None:
        """Keep the leases, and commit the batch before once its policy is written. It is called after each microbatch.

        The error of a policy that could not be written is raised after the step.
        """
        self._held.keep()
        if self.writer.has_succeeded:
            self._commit_publication(self._held.keep)

    def _keep_publication(self) -> None:
        """Report the wait for the policy that is being written, and keep the lease of its batch."""
        try:
            self.writer.explain(self._held.keep)
        except LeaseLostError as error:
            self._give_up(error)

    def _train(self, batch: Batch, phases: PhaseTimer) -> None:
        """Train on a claimed batch, and begin to write its policy and its checkpoint."""
        budget, tokens = self.recipe.disk.max_token_values_megabytes, TokenRecord(batch)
        with arithmetic_of(batch, self._progress) as progress:
            packed, metrics = train_batch(
                batch,
                self.learner,
                self.recipe,
                self._credits,
                progress=progress,
                phases=phases,
                record=tokens if budget else None,
            )
        if budget:
            write_token_values(self.run_dir, batch.train_step, batch.batch_id, tokens.calls(), budget)
        with phases("publish"):
            self._commit_publication(self._held.keep)
            self.learner.give_weights(self.model, self._held.keep)
        with phases("copy_state"):
            self.checkpoints.begin_if_due(batch.train_step, batch.batch_id, self._held.keep)
        version, root = self.ledger.policies.next_version(), policies_root(self.run_dir.resolve(), self.ledger.policy)
        self._publication = Publication(
            batch,
            version,
            folder=policy_folder(root, version, batch.batch_id),
            report=metrics | batch_metrics(batch, packed) | phases.seconds,
            phases=phases,
            optimizer_step=self.learner.optimizer_step,
        )
        self.writer.publish(self._publication, packed.branches)

    def _commit_publication(self, on_progress: Callable[[], None]) -> None:
        """Wait for the policy that is being written, if there is one, and commit its batch."""
        if (publication := self._publication) is None:
            return
        self.writer.wait(on_progress)
        batch, path, phases = publication.batch, publication.folder, publication.phases
        try:
            self.writer.collect()
        except FileNotFoundError:  # another trainer that has committed this step deletes these files
            self._held.renew()
            raise
        self._receipts.committing(batch)
        with phases("commit"):
            policy = self.ledger.batches.commit(batch, str(path), publication.report, self.checkpoints.progress)
        # The batch is committed also if a later line fails.
        self._publication = None
        self._held.remove(batch)
        self.version, self._committed = policy.version, (batch.train_step, batch.batch_id)
        self._optimizer_step = publication.optimizer_step
        self._receipts.committed(batch, policy)
        self.checkpoints.prune()
        prune_attempts(path)
        self.wait.begin()
        numbers = {"step": batch.train_step, "version": policy.version}
        self.recorder.metric("train", **(publication.report | phases.seconds | numbers))

    def _give_up(self, error: LeaseLostError) -> None:
        """Undo the train steps that are not committed, after a lease expired while this process was suspended."""
        self.writer.wait(self.presence.beat)
        self.writer.forget()
        self._held.release(error)
        self._publication = None
        self._undo()

    def _undo(self) -> None:
        """Undo the changes to the weights since the last commit, if any, by a return to the last train step that has a
        checkpoint.

        Raise `LedgerError` if another trainer has committed, since restoring could roll back that trainer's steps.
        """
        self.learner.ranks.require_all()
        if (newest := self.ledger.policies.latest().version) != self.version:
            raise self._succeeded(newest)
        if self.learner.optimizer_step != self._optimizer_step:
            self.restore()


async def run_trainer(recipe: Recipe, run_dir: Path, stop: asyncio.Event, module: str = "trainer") -> None:
    """Run the trainer process named `module` (one of `Recipe.trainer_modules`) until `stop` is set."""
    torch.set_num_threads(recipe.train.threads)
    policy = recipe.trainer_modules[module]
    with joined_ranks(recipe) as ranks:
        if ranks.rank:
            with ExitStack() as stack:
                Follower(recipe, policy, ranks, lambda: stack.enter_context(closing(Ledger.view(run_dir)))).run()
            return
        with closing(Ledger.open(run_dir)) as ledger, Recorder(run_dir, module) as recorder:
            presence = Presence(ledger.modules, module, recorder=recorder)
            trainer = Trainer(recipe, ledger.of(policy), run_dir, recorder, presence, ranks)
            with closing(trainer.checkpoints):
                await trainer.run(stop)
