"""Schedules: when a group may start, and when an engine may load new weights.

A schedule is a record that admission and engines read. In addition, `Recipe.max_groups_ahead` limits the number of
admitted groups.
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
    """Number of rollouts that wait for a session, evaluation included, counted up to two per session."""
    open_groups: int
    """Number of training groups with unfinished rollouts."""


class Capacity(Struct, frozen=True, kw_only=True):
    """Number of groups that may start now. If the number is 0, the record also has the cause of the wait and the event
    that ends it."""

    groups: int
    versions_behind: int = 0
    """Largest lag, in train steps, of the first tokens of a group that starts now."""
    waiting_for: str = ""
    ends_when: str = ""


class Schedule(Struct, frozen=True, kw_only=True):
    """One way to interleave rollouts and training."""

    room: Callable[[Load], Capacity | None]
    """Function that returns the number of further groups for which there is room in the sessions; None for no limit."""
    between_batches: bool
    """True if engines load new weights only when all training rollouts have ended or are paused, and new groups start
    only on the new weights."""
    oldest_first: bool = False
    """True if groups start only when all unfinished groups began with the policy that the engines serve."""

    def may_take_weights(self, ledger: Ledger, rule: StragglerRule) -> bool:
        """Return whether an engine may load the newest policy now. Rollouts that are paused and requeued do not prevent
        it; a group whose round has ended does, until the manager has closed it or added a round."""
        if not self.between_batches:
            return True
        unfinished = ledger.rollouts.unfinished(Purpose.TRAIN)
        if ledger.groups.ended_rounds():
            return False
        return not unfinished[RolloutState.LEASED] and (
            not unfinished[RolloutState.QUEUED] or rule.pauses_training(ledger)
        )


def two_rollouts_per_session(load: Load) -> Capacity:
    """Limit the queue to two rollouts per session. A longer queue would hold admission slots without producing
    anything."""
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
    """Set no limit: all groups of a batch are queued at once."""


SCHEDULES = {
    "rollout_wise": Schedule(room=two_rollouts_per_session, between_batches=False),
    "task_wise": Schedule(room=sessions_for_all_rollouts, between_batches=False),
    "one_step_off": Schedule(room=whole_batches, between_batches=True, oldest_first=True),
    "batch_synchronous": Schedule(room=whole_batches, between_batches=True),
}


def make_schedule(name: str) -> Schedule:
    """Return a schedule by name. Raises `ConfigError` for an unknown name."""
    return lookup("schedule", name, SCHEDULES)
