"""The plan of a group, decided by control, and the lease to run one of its rollouts."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from quartet.types.call import MAIN
from quartet.types.fork import Fork
from quartet.types.task import Task

GREEDY, SAMPLED, BLIND = "/greedy", "/sampled", "/blind"
"""Ends of the tags of one evaluation before or after training, as in `before/greedy`: sampled at temperature 0, at the
training temperature, and at temperature 0 with exchanged pictures."""


class Purpose(StrEnum):
    """Purpose of a group. Only groups for training are trained and count towards the limit of admission."""

    TRAIN = "train"
    EVAL = "eval"
    DEMONSTRATION = "demonstration"
    """The group holds successes from outside this run, read from a file for the success pool."""


class RolloutPlan(Struct, frozen=True, kw_only=True):
    """Control's decisions for one group, written when the group is admitted."""

    task: Task
    num_rollouts: int
    max_turns: int
    enough: int | None = None
    """Number of countable members at which the group closes. With None it closes when all members have ended."""
    purpose: Purpose = Purpose.TRAIN
    temperature: float = 1.0
    tag: str = ""
    """Tag of the evaluation that the group belongs to, for example `before/greedy`."""


class Root(Struct, frozen=True):
    """A rollout that begins with a reset."""

    guided: bool = False
    """True if the rollout's prompts contain the guidance of `rollout.guidance`."""


Round = Sequence[Root | Fork]
"""Rollouts that control adds to a group at one time; each begins with a reset or inside a rollout of the group."""


class RolloutLease(Struct, frozen=True, kw_only=True):
    """The right to run one rollout until the deadline. The worker can change the rollout only while `attempt` is its
    current attempt."""

    rollout_id: int
    group_id: int
    attempt: int
    index: int
    """Position in the group, from 0."""
    task: Task
    max_turns: int
    sampling_seed: int
    """Seed of all draws. It is the same for every attempt, so that a retry draws the same random numbers."""
    temperature: float
    purpose: Purpose
    tag: str = ""
    """Tag of the evaluation that the group belongs to."""
    policy: str = MAIN
    """Policy whose trajectories the group `group_id` compares. A trajectory of another policy in the rollout belongs to
    that policy's own group."""
    deadline: float
    """Time at which the lease expires, by `Ledger.now`."""
    recycled: int = 0
    """Number of earlier attempts that were recalled."""
    failures: int = 0
    """Number of earlier attempts that failed. Recalled and released attempts are not failures."""
    partial: str = ""
    """Blob of the calls of a recalled attempt to continue from. Empty if there are none."""
    beginning: str = ""
    """Blob of the calls and state that a child shares with its parent (`Beginning`). Empty if the rollout begins with a
    reset."""
    guided: bool = False
    """True if the prompts contain guidance, without which they are trained."""
    parent: Fork | None = None
    """Fork point in the parent rollout; None if the rollout begins with a reset."""
