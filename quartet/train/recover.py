"""Where a trainer goes on after a restart: the newest committed train step whose files are whole."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from quartet.config import Recipe
from quartet.errors import CheckpointError, UnusablePolicyError
from quartet.files.whole_folder import check_folder, nothing
from quartet.ledger import Ledger
from quartet.ledger.checkpoints import RecoveryPoint

LOG = logging.getLogger(__name__)
T = TypeVar("T")


def roll_back_to_whole(
    ledger: Ledger, recipe: Recipe, load: Callable[[Path], T], *, on_progress: Callable[[], None] = nothing
) -> tuple[RecoveryPoint, T]:
    """Undo the train steps after the newest one whose checkpoint and policy are whole; return it and its loaded policy.

    With sparse checkpoints these are the steps since the last one. Where its files are damaged or gone, the run goes
    back to the checkpoint before it, and an event names the damage. `load` reads a policy's folder. Raises
    `CheckpointError` when there is no pair, and `UnusablePolicyError` with the newest one's damage when none is whole:
    another start of the trainer would find the same.
    """
    points = ledger.points_to_go_on_from(recipe.train.train_steps_per_checkpoint)
    damage: list[CheckpointError] = []
    for point in points:
        try:
            if point.checkpoint:
                check_folder(point.checkpoint, on_progress=on_progress)
            loaded = load(ledger.run_dir / point.policy.path)
        except CheckpointError as error:
            damage.append(error)
            LOG.error("train step %d cannot be gone on from: %s", point.train_step, error)
            ledger.event("recovery_point_damaged", train_step=point.train_step, error=error.what)
            continue
        if point.train_step < ledger.train_step():
            LOG.warning("the run goes on from train step %d of %d", point.train_step, ledger.train_step())
            ledger.roll_back(point.train_step)
        return point, loaded
    raise UnusablePolicyError(damage[0].what, damage[0].advice) from damage[0]
