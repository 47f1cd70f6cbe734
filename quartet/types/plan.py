"""What control decided for a group, and the right to run one rollout of it."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from quartet.types.call import MAIN
from quartet.types.fork import Fork
from quartet.types.task import Task


class Purpose(StrEnum):
    """Why a group exists. Only training groups are trained and take an admission slot."""

    TRAIN = "train"
    EVAL = "eval"
    DEMONSTRATION = "demonstration"
    """Successes that no rollout of this run made, read from a file for the success pool."""


class RolloutPlan(Struct, frozen=True, kw_only=True):
    """What control decided for one group, written when the group is admitted."""

    task: Task
    num_rollouts: int
    max_turns: int
    enough: int | None = None
    """The group closes with this many countable members; None: when all have ended."""
    purpose: Purpose = Purpose.TRAIN
    temperature: float = 1.0
    tag: str = ""
    """For evaluation: which evaluation this belongs to, for example `before/greedy`."""


class Root(Struct, frozen=True):
    """A rollout that begins with a reset."""


Round = Sequence[Root | Fork]
"""What control adds to a group at one time: rollouts that begin with a reset, and rollouts that begin inside another
one of the group."""


class RolloutLease(Struct, frozen=True, kw_only=True):
    """The right to run one rollout until the deadline. Every write it allows is conditional on `attempt`."""

    rollout_id: int
    group_id: int
    attempt: int
    index: int
    """Position in the group, from 0."""
    task: Task
    max_turns: int
    sampling_seed: int
    """Same for every attempt: a retried rollout draws the same random numbers."""
    temperature: float
    purpose: Purpose
    policy: str = MAIN
    """The policy that the group `group_id` compares; the trajectories of another one go to that one's group."""
    deadline: float
    """By the clock of `Ledger.now`."""
    recycled: int = 0
    """How many of the earlier attempts were recalled."""
    failures: int = 0
    """How many of the earlier attempts failed; those that were recalled or given back did not."""
    partial: str = ""
    """Blob of what those have sampled, or of what a child shares with its parent; empty where there is nothing to go on
    from."""
    parent: Fork | None = None
    """Where the rollout begins inside another one; None where it begins with a reset."""
