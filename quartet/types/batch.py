"""What is trained together, and what comes of it: groups, batches, policies."""

from enum import StrEnum

from msgspec import Struct

from quartet.types.ancestry import Ancestry
from quartet.types.call import MAIN
from quartet.types.task import Task
from quartet.types.trajectory import Trajectory


class ReplayRule(StrEnum):
    """What stands for the probability under which a replayed token was sampled."""

    STORED = "stored"
    """The recorded log-probs: off-policy, so the importance weight says how likely the token still is."""
    RECOMPUTE = "recompute"
    """The trainer's own old log-probs, weight 1: what is unlikely by now, or was never sampled, is learned in full."""
    ANCHOR = "anchor"
    """Nothing, since it is not compared with the group: it gets no credit, and supervised loss terms imitate it."""


class MemberUse(StrEnum):
    """What a member of a batch is there for."""

    FRESH = "fresh"
    """It belongs to the group, and is trained on once."""
    REPLAY = "replay"
    """A stored rollout that joined the group and is compared with it."""
    ANCHOR = "anchor"
    """A stored rollout that is imitated: in no baseline, without an advantage."""


class GroupMember(Struct, frozen=True, kw_only=True):
    """One finished rollout of a claimed group."""

    rollout_id: int
    trajectory: Trajectory
    replay: ReplayRule | None = None
    """Set for a stored rollout that joined the group; None for one of its own."""

    @property
    def use(self) -> MemberUse:
        """What the member is there for."""
        if self.replay is None:
            return MemberUse.FRESH
        return MemberUse.ANCHOR if self.replay is ReplayRule.ANCHOR else MemberUse.REPLAY


class Group(Struct, frozen=True, kw_only=True):
    """The rollouts of one task that are compared with each other."""

    group_id: int
    task: Task
    members: list[GroupMember]
    policy: str = MAIN
    """Whose trajectories it compares."""


class Batch(Struct, frozen=True, kw_only=True):
    """What one claim takes: one train step, at most one new policy."""

    batch_id: int
    attempt: int
    train_step: int
    """The step this batch becomes when committed, from 1."""
    start_version: int
    """The policy version the train step starts from."""
    groups: list[Group]
    ancestry: Ancestry = Ancestry()
    """Of the run's policies; it tells how old a token is."""


class Policy(Struct, frozen=True, kw_only=True):
    """A committed set of weights: a policy is its name and its version."""

    version: int
    path: str
    train_step: int
    name: str = MAIN
