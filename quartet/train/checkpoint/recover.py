"""Recover a trainer after a restart, from the newest committed train step whose files are undamaged."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from quartet.config import Recipe
from quartet.errors import CheckpointError, UnusablePolicyError
from quartet.files.whole_folder import check_folder
from quartet.ledger import Ledger
from quartet.ledger.checkpoints import RecoveryPoint
from quartet.ledger.recovery import points_to_go_on_from
from quartet.on_progress import no_progress

LOG = logging.getLogger(__name__)
T = TypeVar("T")


def roll_back_to_whole(
    ledger: Ledger, recipe: Recipe, load: Callable[[Path], T], *, on_progress: Callable[[], None] = no_progress
) -> tuple[RecoveryPoint, T]:
    """Roll back to the newest train step with an undamaged checkpoint and policy; return it and the loaded policy.

    Later train steps are undone. Steps whose checkpoint or policy is missing are skipped. If either is damaged, an
    event names the damage, and the next older step is tried. Before the first checkpoint is complete, the run goes back
    to the initial policy. `load` reads a policy's folder.

    Raise `CheckpointError` if no train step has both files and the run cannot go back to the initial policy. Raise
    `UnusablePolicyError`, with the damage of the newest step, if the files of all steps are damaged; a restart would
    fail in the same way.
    """
    points = points_to_go_on_from(ledger, recipe.train.train_steps_per_checkpoint)
    damage: list[CheckpointError] = []
    for point in points:
        try:
            if point.checkpoint:
                check_folder(point.checkpoint, on_progress=on_progress)
            loaded = load(ledger.run_dir / point.policy.path)
        except CheckpointError as error:
            damage.append(error)
            LOG.error("cannot recover from train step %d: %s", point.train_step, error)
            ledger.event("recovery_point_damaged", train_step=point.train_step, error=error.what)
            continue
        if point.train_step < ledger.batches.train_step():
            LOG.warning(
                "rolling back to train step %d from train step %d", point.train_step, ledger.batches.train_step()
            )
            ledger.batches.roll_back(point.train_step)
        return point, loaded
    raise UnusablePolicyError(damage[0].what, damage[0].advice) from damage[0]
