"""Trainer checkpoints by their folders' names, and the train steps that a run can go on from.

What lies in a checkpoint is the trainer's business: `quartet.train.checkpoint`.
"""

import re
from pathlib import Path

from msgspec import Struct

from quartet.types import Policy

CHECKPOINTS = "trainer"
"""The folder of a run that holds its checkpoints."""
_NAME = re.compile(r"step_(\d+)(?:_batch_(\d+))?")


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A checkpoint on disk. It was written before its batch was committed, so the batch may never have been."""

    train_step: int
    batch_id: int | None
    """None in the runs of Quartet 0.1's first builds, whose folders name the step alone."""
    folder: Path


class RecoveryPoint(Struct, frozen=True, kw_only=True):
    """A committed train step that a trainer can go on from."""

    train_step: int
    policy: Policy
    """The policy that this step published."""
    checkpoint: Path | None
    """None at train step 0, where the optimizer is new."""


def checkpoint_folder(run_dir: Path, train_step: int, batch_id: int) -> Path:
    """Return the folder of one batch's checkpoint: a trainer that wakes up late cannot overwrite its successor's."""
    return run_dir / CHECKPOINTS / f"step_{train_step:06d}_batch_{batch_id:06d}"


def checkpoints_on_disk(run_dir: Path) -> list[Checkpoint]:
    """Return the complete checkpoints of a run, oldest first; a folder has its name only once it is complete."""
    found: list[Checkpoint] = []
    for folder in (run_dir / CHECKPOINTS).glob("step_*"):
        if name := _NAME.fullmatch(folder.name):
            step, batch_id = name.groups()
            found.append(
                Checkpoint(train_step=int(step), batch_id=None if batch_id is None else int(batch_id), folder=folder)
            )
    return sorted(found, key=lambda checkpoint: (checkpoint.train_step, checkpoint.batch_id or 0))
