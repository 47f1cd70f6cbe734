"""States of the ledger's three state machines, and the names of schedules and lag rules in a recipe."""

from enum import StrEnum
from typing import Literal


class RolloutState(StrEnum):
    """States of a rollout: queued -> leased -> finished. It is queued again for another attempt, and finished if it is
    cancelled.

    `quartet.ledger.transitions` has all transitions.
    """

    QUEUED = "queued"
    LEASED = "leased"
    FINISHED = "finished"


class GroupState(StrEnum):
    """States of a group: open -> closed -> trainable -> claimed -> trained. An open, closed or trainable group may be
    dropped."""

    OPEN = "open"
    CLOSED = "closed"
    TRAINABLE = "trainable"
    CLAIMED = "claimed"
    TRAINED = "trained"
    DROPPED = "dropped"


TOO_FEW_COUNTABLE = "too_few_countable"
"""Drop reason of a group with too few rollouts that count in its baseline."""
EQUAL_REWARDS = "equal_rewards"
"""Drop reason of a group whose rewards are all equal; control counts such groups."""


class BatchState(StrEnum):
    """States of a batch: claimed -> committed, or -> released, which makes its groups trainable again."""

    CLAIMED = "claimed"
    COMMITTED = "committed"
    RELEASED = "released"


ScheduleName = Literal["rollout_wise", "task_wise", "one_step_off", "batch_synchronous"]
"""Schedule of group starts and weight updates; see `quartet.config.Admission.schedule`."""

OnLate = Literal["mask", "wait", "drop"]
"""Treatment of groups that exceed the lag bound; see `quartet.config.Admission.on_late`."""
