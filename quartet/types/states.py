"""The ledger's three state machines, and what its rules may be called in a recipe."""

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
"""When groups start and weights change; see `quartet.config.Admission.schedule`."""

OnLate = Literal["mask", "wait", "drop"]
"""What becomes of a group that outlives its pace; see `quartet.config.Admission.on_late`."""
