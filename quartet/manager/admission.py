"""Admission: the number of groups that may start now, computed from the ledger each time so that a restart loses
nothing.

A group holds an admission slot from its admission until it is trained or dropped. With several policies, each has a
group for the same rollouts, and the policy with the most groups in slots counts. There are `(max_lag + 1) x
groups_per_batch` slots with the schedules `rollout_wise` and `task_wise`, slots for one batch with `batch_synchronous`,
and for two with `one_step_off`; a straggler rule may add some. A train step frees `groups_per_batch` slots. So by
Little's law a group is trained, on average, within `max_lag + 1` train steps of its admission, and its first tokens
then have at most the lag `max_lag`. A slow group takes longer; `admission.on_late` decides how it is treated. While the
engines serve an older policy than the newest, the first tokens of a new group already have a lag, and one batch fewer
is admitted for each train step of this lag. So a commit makes room for new groups only when the engines load its
policy.

The queue of rollouts is kept short, because a queued rollout holds a slot and produces nothing. The limits depend on
`admission.schedule`. With `on_late = "wait"`, and with schedules that change weights between batches, a group starts
only after the engine has loaded or rejected the newest policy. The version served at that time is a lower bound for the
versions of all the group's tokens; a roll-back lowers it for open groups.

Liveness: while the trainer waits, fewer than `groups_per_batch` groups are trainable, or it waits for unfinished ones.
Then a slot is free, or a group is open or closed, or an engine is about to load a newer policy. An open group has a
queued or running rollout, or is about to close. If an engine rejects more than `max_lag` consecutive policies, nothing
remains trainable, and the run ends as starved.
"""

import math

from msgspec import structs

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.manager.schedule import Capacity, Load, make_schedule
from quartet.manager.straggler.base import StragglerRule
from quartet.types import GroupState

_ENGINE = "the engine"


def capacity(*, ahead: int, max_ahead: int, room: Capacity | None, held_back: int = 0) -> Capacity:
    """Return the number of groups that may start.

    `ahead` of the `max_ahead` slots are taken. `held_back` of the remaining slots may be used only when the engines
    have loaded the newest policy. `room` is the schedule's limit from the number of sessions, if any.
    """
    free = max_ahead - ahead
    if free <= 0:
        ends_when = f"a batch is trained: {ahead}/{max_ahead} groups ahead"
        return Capacity(groups=0, waiting_for="an admission slot", ends_when=ends_when)
    if free <= held_back:
        return Capacity(groups=0, waiting_for=_ENGINE, ends_when="it loads a newer policy")
    if room is None:
        return Capacity(groups=free - held_back)
    return Capacity(groups=min(free - held_back, room.groups)) if room.groups else room


class Admission:
    """The admission rule applied to a run."""

    def __init__(self, recipe: Recipe, ledger: Ledger, stragglers: StragglerRule) -> None:
        self._recipe, self._ledger = recipe, ledger
        self._schedule = make_schedule(recipe.admission.schedule)
        self._max_ahead = stragglers.groups_ahead(recipe.max_groups_ahead)
        self._rollouts_per_group = stragglers.quorum(recipe.control.rollouts_per_group).queued

    @property
    def settled_only(self) -> bool:
        """True if a group may start only after the engines have loaded or rejected the newest policy."""
        return self._schedule.between_batches or self._recipe.admission.on_late == "wait"

    def capacity(self) -> Capacity:
        """Return the current capacity."""
        # Sizes are read before the lag: after a commit in between, too few groups are admitted instead of too many.
        sizes, ahead = self._ledger.statistics.groups_by_state(), self._ledger.groups.ahead()
        versions_behind = self._ledger.policies.versions_behind()
        if (left := self._rollouts_left()) == 0:
            return Capacity(groups=0, waiting_for="the end of training", ends_when="the started groups are trained")
        if self.settled_only and not self._ledger.policies.latest_is_settled():
            return Capacity(groups=0, waiting_for=_ENGINE, ends_when="it loads or rejects the newest policy")
        if self._schedule.oldest_first and self._ledger.groups.has_older_unfinished():
            # After a restart an engine may serve the newest policy while groups of the previous one are unfinished.
            return Capacity(groups=0, waiting_for="older groups", ends_when="the groups of the previous policy end")
        sessions = self._ledger.modules.sessions() or self._recipe.sessions
        load = Load(
            sessions=sessions,
            rollouts_per_group=self._rollouts_per_group,
            queued=self._ledger.rollouts.count_queued(2 * sessions),
            open_groups=sizes[GroupState.OPEN],
        )
        found = capacity(
            ahead=ahead,
            max_ahead=self._max_ahead,
            room=self._schedule.room(load),
            held_back=self._held_back(versions_behind),
        )
        groups = found.groups if left is None else min(found.groups, math.ceil(left / self._rollouts_per_group))
        return structs.replace(found, groups=groups, versions_behind=versions_behind)

    def _rollouts_left(self) -> int | None:
        """Return the number of training rollouts that may still be queued; None for no limit."""
        most = self._recipe.train.max_rollouts
        return None if most is None else max(0, most - self._ledger.rollouts.queued_for_training())

    def _held_back(self, versions_behind: int) -> int:
        """Return the number of slots that must stay free because their groups would be too old when they are trained.

        New groups are sampled from a policy that is `versions_behind` train steps older than the newest.
        """
        in_time = (self._recipe.admission.max_lag + 1 - versions_behind) * self._recipe.train.groups_per_batch
        return max(0, self._recipe.max_groups_ahead - in_time)
