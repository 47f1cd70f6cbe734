"""Schedules: when a group may start, and when an engine may take new weights. A schedule is values, not a loop.

How many batches may be on their way is `Recipe.max_groups_ahead`; admission and engine ask for the rest.
"""

from collections.abc import Callable

from msgspec import Struct

from quartet.ledger import Ledger
from quartet.manager.straggler.base import StragglerRule
from quartet.registry import lookup
from quartet.types import Purpose, RolloutState


class Load(Struct, frozen=True, kw_only=True):
    """What the environment sessions have to do."""

    sessions: int
    rollouts_per_group: int
    queued: int
    """Rollouts that wait for a session, evaluation included."""
    open_groups: int
    """Training groups with unfinished rollouts."""


class Capacity(Struct, frozen=True, kw_only=True):
    """How many groups may start, and if none, what that waits for and what ends it."""

    groups: int
    versions_behind: int = 0
    """How old the first tokens of these groups may be."""
    waiting_for: str = ""
    ends_when: str = ""


class Schedule(Struct, frozen=True, kw_only=True):
    """One way of dividing time between rollouts and training."""

    room: Callable[[Load], Capacity | None]
    """How many more groups the sessions have room for; None: that does not matter."""
    between_batches: bool
    """New weights wait until no training rollout is unfinished, and new groups wait for the weights."""
    oldest_first: bool = False
    """No group starts while one is unfinished that began under an older policy than is served now."""

    def may_take_weights(self, ledger: Ledger, rule: StragglerRule) -> bool:
        """Whether an engine may load the newest policy now. Recycled rollouts that rest are not in its way."""
        if not self.between_batches:
            return True
        unfinished = ledger.unfinished_rollouts(Purpose.TRAIN)
        return not unfinished[RolloutState.LEASED] and (not unfinished[RolloutState.QUEUED] or rule.rests(ledger))


def two_rollouts_per_session(load: Load) -> Capacity:
    """A queue that is short, because a rollout in it holds a slot and produces nothing; never an empty one."""
    groups = max((2 * load.sessions - load.queued) // load.rollouts_per_group, 1 if load.queued == 0 else 0)
    # The numbers stand in `ends_when`, so that a wait goes on being the same wait while they change.
    ends_when = f"workers claim some of {load.queued} queued rollouts"
    return Capacity(groups=groups, waiting_for="room in the queue", ends_when=ends_when)


def sessions_for_all_rollouts(load: Load) -> Capacity:
    """A group has its sessions to itself; one group may always run."""
    groups = max(load.sessions // load.rollouts_per_group, 1) - load.open_groups
    ends_when = f"one of {load.open_groups} open groups ends"
    return Capacity(groups=max(groups, 0), waiting_for="sessions for a whole group", ends_when=ends_when)


def whole_batches(load: Load) -> None:
    """A batch is queued as a whole."""


SCHEDULES = {
    "rollout_wise": Schedule(room=two_rollouts_per_session, between_batches=False),
    "task_wise": Schedule(room=sessions_for_all_rollouts, between_batches=False),
    "one_step_off": Schedule(room=whole_batches, between_batches=True, oldest_first=True),
    "batch_synchronous": Schedule(room=whole_batches, between_batches=True),
}


def make_schedule(name: str) -> Schedule:
    """Raises `ConfigError` for an unknown name."""
    return lookup("schedule", name, SCHEDULES)
