"""Schedules: when a group may start, and when an engine may load new weights. A schedule is data, not a loop.

Admission and engine read the schedule. Besides it, `Recipe.max_groups_ahead` bounds the admitted groups.
"""

from collections.abc import Callable

from msgspec import Struct

from quartet.ledger import Ledger
from quartet.manager.straggler.base import StragglerRule
from quartet.registry import lookup
from quartet.types import Purpose, RolloutState


class Load(Struct, frozen=True, kw_only=True):
    """Load of the environment sessions."""

    sessions: int
    rollouts_per_group: int
    queued: int
    """Number of rollouts that wait for a session, evaluation included."""
    open_groups: int
    """Number of training groups with unfinished rollouts."""


class Capacity(Struct, frozen=True, kw_only=True):
    """Number of groups that may start now; if it is 0, also the cause of the wait and the event that ends it."""

    groups: int
    versions_behind: int = 0
    """Largest lag that the first tokens of these groups may have."""
    waiting_for: str = ""
    ends_when: str = ""


class Schedule(Struct, frozen=True, kw_only=True):
    """One way to interleave rollouts and training."""

    room: Callable[[Load], Capacity | None]
    """Returns the number of further groups that the sessions have room for; None for no limit."""
    between_batches: bool
    """True if new weights wait until no training rollout is unfinished, and new groups wait for the new weights."""
    oldest_first: bool = False
    """True if no group starts while an unfinished group began with an older policy than the engines serve."""

    def may_take_weights(self, ledger: Ledger, rule: StragglerRule) -> bool:
        """Return whether an engine may load the newest policy now. Paused, recycled rollouts do not block it."""
        if not self.between_batches:
            return True
        unfinished = ledger.rollouts.unfinished(Purpose.TRAIN)
        return not unfinished[RolloutState.LEASED] and (
            not unfinished[RolloutState.QUEUED] or rule.pauses_training(ledger)
        )


def two_rollouts_per_session(load: Load) -> Capacity:
    """Keep the queue short, since a queued rollout holds an admission slot and produces nothing, but not empty."""
    groups = max((2 * load.sessions - load.queued) // load.rollouts_per_group, 1 if load.queued == 0 else 0)
    # Numbers are only in `ends_when`, because a change of `waiting_for` would begin a new wait.
    ends_when = f"workers claim some of {load.queued} queued rollouts"
    return Capacity(groups=groups, waiting_for="room in the queue", ends_when=ends_when)


def sessions_for_all_rollouts(load: Load) -> Capacity:
    """Start a group only if there are sessions for all its rollouts; at least one group may always run."""
    groups = max(load.sessions // load.rollouts_per_group, 1) - load.open_groups
    ends_when = f"one of {load.open_groups} open groups ends"
    return Capacity(groups=max(groups, 0), waiting_for="sessions for a whole group", ends_when=ends_when)


def whole_batches(load: Load) -> None:
    """Set no limit: a batch is queued as a whole."""


SCHEDULES = {
    "rollout_wise": Schedule(room=two_rollouts_per_session, between_batches=False),
    "task_wise": Schedule(room=sessions_for_all_rollouts, between_batches=False),
    "one_step_off": Schedule(room=whole_batches, between_batches=True, oldest_first=True),
    "batch_synchronous": Schedule(room=whole_batches, between_batches=True),
}


def make_schedule(name: str) -> Schedule:
    """Return a schedule by name. Raises `ConfigError` for an unknown name."""
    return lookup("schedule", name, SCHEDULES)
