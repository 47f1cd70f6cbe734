"""Checkpoints written beside training: a train step's state is copied, and a thread writes the copy.

One checkpoint is written at a time. A train step whose checkpoint is due waits for the previous one before its commit,
so with a checkpoint every K train steps at most 2 K - 1 committed steps are rolled back after a crash.
"""

import math
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from quartet.config import Recipe
from quartet.crash_points import crash_point
from quartet.ledger import Ledger
from quartet.ledger.checkpoints import CheckpointProgress, checkpoint_folder, checkpoints_root
from quartet.ledger.recovery import recovery_points
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.train.background_write import BackgroundWrite
from quartet.train.checkpoint.files import Snapshot, state_bytes, take_snapshot, write_checkpoint
from quartet.train.ranks.orders import SaveState
from quartet.train.step import Learner

BYTES_PER_TRAIN_STEP = 200 * 10**6
"""Largest checkpoint, in bytes, that is by default written after every train step. Larger ones are written less
often."""
MOST_TRAIN_STEPS = 10
"""Maximum number of train steps between two checkpoints by default."""


class CheckpointWriter:
    """Writes the checkpoints of one trainer and deletes old ones."""

    def __init__(
        self, ledger: Ledger, recipe: Recipe, learner: Learner, recorder: Recorder, presence: Presence
    ) -> None:
        self._ledger, self._learner, self._recorder = ledger, learner, recorder
        self._keep, self._durable = recipe.disk.keep_checkpoints, recipe.ledger.durability == "full"
        self.every = recipe.train.train_steps_per_checkpoint or default_interval(state_bytes(learner))
        """Number of train steps from one checkpoint to the next."""
        self._write = BackgroundWrite("the previous checkpoint", presence, recipe.runtime.heartbeat_timeout_seconds)
        self._newest = "none"  # name of the folder of the newest checkpoint, which may be being written
        self.progress = CheckpointProgress()
        """Progress to commit with a train step. Retention keeps the policy of a checkpoint that has begun, so a step
        whose checkpoint has begun must commit it in the same transaction."""

    def restored(self, train_step: int) -> None:
        """Continue from the checkpoint of this train step; 0 for none."""
        self.progress = CheckpointProgress(whole=train_step, begun=train_step)

    def begin_if_due(self, train_step: int, batch_id: int, on_progress: Callable[[], None]) -> None:
        """If a checkpoint is due, wait until the previous one is whole, copy the state, and begin to write the copy.

        Call this before the commit of the train step.
        """
        if train_step % self.every == 0:
            self.wait(on_progress)
            self._begin(train_step, batch_id, on_progress)

    def prune(self) -> None:
        """Delete old checkpoints. Call this only after a commit: an expired trainer would delete the checkpoint that
        its successor is writing."""
        superfluous = superfluous_checkpoints(self._ledger, self._keep)
        delete_folders([folder for folder in superfluous if not folder.name.startswith(self._newest)])

    def finish(self, train_step: int, batch_id: int, version: int, on_progress: Callable[[], None]) -> None:
        """Write the checkpoint of the last committed train step if it has none, and return when all are complete.

        `version` is the policy of that step. If another trainer has committed a newer policy, nothing is recorded, and
        no folder is deleted, since that trainer may be writing to it.
        """
        self.wait(on_progress)
        if self.progress.whole < train_step:
            self._begin(train_step, batch_id, on_progress)
            self.wait(on_progress)
        superfluous = superfluous_checkpoints(self._ledger, self._keep)  # listed before the version is compared
        if self._ledger.batches.record_checkpoints(self.progress, version):
            delete_folders(superfluous)

    def collect(self) -> None:
        """Take the result of a write that has ended. Raise the error of a write that failed."""
        if self._write.collect():
            self.progress = CheckpointProgress(whole=self.progress.begun, begun=self.progress.begun)

    def wait(self, on_progress: Callable[[], None]) -> None:
        """Return when no checkpoint is being written. Raise the error of a write that failed."""
        self._write.wait(on_progress)
        self.collect()

    def close(self) -> None:
        """Return when no checkpoint is being written, also after an error. The write exchanges data with the other
        ranks, so they must be left later."""
        self._write.close()

    def _begin(self, train_step: int, batch_id: int, on_progress: Callable[[], None]) -> None:
        folder = checkpoint_folder(self._ledger.run_dir, train_step, batch_id, self._ledger.policy)
        crash_point("state_copy.before")
        with self._learner.ranks.together(SaveState(str(folder.resolve()), train_step)):
            snapshot = take_snapshot(self._learner, train_step, on_progress=on_progress)
        self._newest, self.progress = folder.name, CheckpointProgress(whole=self.progress.whole, begun=train_step)
        self._write.begin(partial(self._write_files, folder, snapshot))
        crash_point("state_copy.after")

    def _write_files(self, folder: Path, snapshot: Snapshot, on_progress: Callable[[], None]) -> None:
        with self._recorder.span("checkpoint", lane="checkpoint", trace=f"train_step {snapshot.numbers.train_step}"):
            write_checkpoint(
                folder, snapshot, ranks=self._learner.ranks, durable=self._durable, on_progress=on_progress
            )


def superfluous_checkpoints(ledger: Ledger, keep: int) -> list[Path]:
    """Return all checkpoint folders of a policy but those of its newest `keep` recovery points.

    Incomplete checkpoints of a crashed trainer are among the returned ones. So are checkpoints that a late trainer
    completed after their step was rolled back.
    """
    folders = list(checkpoints_root(ledger.run_dir, ledger.policy).glob("step_*"))
    if len(folders) <= keep:
        return []
    kept = [point.checkpoint for point in recovery_points(ledger)[:keep]]
    return [folder for folder in folders if folder not in kept]


def delete_folders(folders: list[Path]) -> None:
    """Delete folders, which another trainer may be deleting too."""
    for folder in folders:
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


def default_interval(num_bytes: int) -> int:
    """Return the number of train steps per checkpoint that suits checkpoints of this size."""
    return min(max(math.ceil(num_bytes / BYTES_PER_TRAIN_STEP), 1), MOST_TRAIN_STEPS)
