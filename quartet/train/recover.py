"""Where a trainer goes on after a restart: the newest committed train step whose files are whole."""

from quartet.config import Recipe
from quartet.data.checkpoints import RecoveryPoint
from quartet.data.ledger import Ledger
from quartet.errors import CheckpointError
from quartet.policy.load import read_weights
from quartet.train.checkpoint import check_files


def roll_back_to_whole(ledger: Ledger, recipe: Recipe) -> RecoveryPoint:
    """Undo the train steps after the newest one whose checkpoint and policy are whole, and return it.

    With sparse checkpoints these are the steps since the last one. Where its files are damaged or gone, the run goes
    back to the checkpoint before it, and an event names the damage. Raises `CheckpointError` when no pair is whole.
    """
    points = ledger.points_to_go_on_from(recipe.train.train_steps_per_checkpoint)
    damage: list[CheckpointError] = []
    for point in points:
        try:
            _check(ledger, point)
        except CheckpointError as error:
            damage.append(error)
            ledger.event("recovery_point_damaged", train_step=point.train_step, error=error.what)
            continue
        if point.train_step < ledger.train_step():
            ledger.roll_back(point.train_step)
        return point
    raise damage[0]


def _check(ledger: Ledger, point: RecoveryPoint) -> None:
    """Raise `CheckpointError` for damage that a trainer would meet."""
    read_weights(ledger.run_dir / point.policy.path)
    if point.checkpoint:
        check_files(point.checkpoint)
