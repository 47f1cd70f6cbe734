"""States of the ledger's three state machines, and the names of schedules and lag rules in a recipe."""

from enum import StrEnum
from typing import Literal


class RolloutState(StrEnum):
    """States: queued -> leased -> finished. A lease may also end with queued, for another attempt.

    `quartet.ledger.transitions` has all transitions.
    """

    QUEUED = "queued"
    LEASED = "leased"
    FINISHED = "finished"


class GroupState(StrEnum):
    """States: open -> closed -> trainable -> claimed -> trained. Any state before trained may end as dropped."""

    OPEN = "open"
    CLOSED = "closed"
    TRAINABLE = "trainable"
    CLAIMED = "claimed"
    TRAINED = "trained"
    DROPPED = "dropped"


class BatchState(StrEnum):
    """States: claimed -> committed, or released, which makes the groups trainable again."""

    CLAIMED = "claimed"
    COMMITTED = "committed"
    RELEASED = "released"


ScheduleName = Literal["rollout_wise", "task_wise", "one_step_off", "batch_synchronous"]
"""Schedule of group starts and weight updates; see `quartet.config.Admission.schedule`."""

OnLate = Literal["mask", "wait", "drop"]
"""Treatment of groups that exceed the lag bound; see `quartet.config.Admission.on_late`."""
