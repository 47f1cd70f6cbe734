"""States of the ledger's three state machines, and the names of schedules and lag rules in a recipe."""

from enum import StrEnum
from typing import Literal


class RolloutState(StrEnum):
    """queued -> leased -> finished, and back to queued for another attempt (moves: `quartet.ledger.transitions`)."""

    QUEUED = "queued"
    LEASED = "leased"
    FINISHED = "finished"


class GroupState(StrEnum):
    """open -> closed -> trainable -> claimed -> trained, or dropped with a reason on the way."""

    OPEN = "open"
    CLOSED = "closed"
    TRAINABLE = "trainable"
    CLAIMED = "claimed"
    TRAINED = "trained"
    DROPPED = "dropped"


class BatchState(StrEnum):
    """claimed -> committed, or released with its groups trainable again."""

    CLAIMED = "claimed"
    COMMITTED = "committed"
    RELEASED = "released"


ScheduleName = Literal["rollout_wise", "task_wise", "one_step_off", "batch_synchronous"]
"""Schedule of group starts and weight updates; see `quartet.config.Admission.schedule`."""

OnLate = Literal["mask", "wait", "drop"]
"""Treatment of groups that exceed the lag bound; see `quartet.config.Admission.on_late`."""
