"""Admission: how many groups may start now. Computed from the ledger each time, never from counters.

A group holds a slot from its admission until it is trained or dropped; of several policies the one with the most groups
counts, since all of them have a group for the same rollouts. With `(max_lag + 1) x groups_per_batch` slots a
group that is admitted at version v, and sampled from it, has at most that many groups before it and with it in the line
of training, so by the time its turn comes the policy has moved on by at most `max_lag` versions, on average. While the
engines still serve an older policy than the newest, a new group's tokens begin with that lag: it leaves room for one
batch less per version. So a commit frees its slots when the engines take the policy and not before.

The queue of rollouts is kept short as well: a rollout that waits in the queue holds a slot and produces nothing. All
this depends on `admission.schedule`. With `on_late = "wait"`, and where weights change between batches, a group starts
only when the engine has taken the newest policy, or refused it. The version that the engine serves then is a lower
bound of all its tokens; a roll-back lowers that of open groups.

Liveness: while the trainer waits, fewer than `groups_per_batch` groups are trainable, or it waits for unfinished ones.
Then a slot is free, or a group is open or closed, or an engine is to take a newer policy; an open group has a rollout
queued or running, or is about to close. An engine that refuses more than `max_lag` policies in a row leaves nothing
that could be trained, and the run ends as starved.
"""

from msgspec import structs

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.manager.schedule import Capacity, Load, make_schedule
from quartet.manager.straggler.base import StragglerRule
from quartet.types import GroupState, RolloutState

_ENGINE = "the engine"


def capacity(*, ahead: int, max_ahead: int, room: Capacity | None, held_back: int = 0) -> Capacity:
    """The rule: `ahead` groups hold slots, `held_back` further slots wait for the engines to take the newest policy,
    and `room` is what the schedule says of the sessions."""
    free = max_ahead - ahead
    if free <= 0:
        ends_when = f"a batch is trained: {ahead}/{max_ahead} groups ahead"
        return Capacity(groups=0, waiting_for="an admission slot", ends_when=ends_when)
    if free <= held_back:
        return Capacity(groups=0, waiting_for=_ENGINE, ends_when="it takes a newer policy")
    if room is None:
        return Capacity(groups=free - held_back)
    return Capacity(groups=min(free - held_back, room.groups)) if room.groups else room


class Admission:
    """The rule applied to a run."""

    def __init__(self, recipe: Recipe, ledger: Ledger, stragglers: StragglerRule) -> None:
        self._recipe, self._ledger = recipe, ledger
        self._schedule = make_schedule(recipe.admission.schedule)
        self._max_ahead = stragglers.groups_ahead(recipe.max_groups_ahead)
        self._rollouts_per_group = stragglers.quorum(recipe.control.rollouts_per_group).queued

    @property
    def settled_only(self) -> bool:
        """Whether a group may start only while the engines have taken, or refused, the newest policy."""
        return self._schedule.between_batches or self._recipe.admission.on_late == "wait"

    def capacity(self) -> Capacity:
        """What may start now."""
        # The sizes first: a train step that commits between the looks has freed no slot then.
        sizes, ahead = self._ledger.queue_sizes(), self._ledger.groups_ahead()
        versions_behind = self._ledger.versions_behind()
        if self.settled_only and not self._ledger.latest_is_settled():
            return Capacity(groups=0, waiting_for=_ENGINE, ends_when="it takes, or refuses, the newest policy")
        if self._schedule.oldest_first and self._ledger.has_older_unfinished():
            # An engine that was started again has the newest policy in the middle of a batch.
            return Capacity(groups=0, waiting_for="older groups", ends_when="those of the policy before end")
        load = Load(
            sessions=self._recipe.env.sessions,
            rollouts_per_group=self._rollouts_per_group,
            queued=sizes.rollouts[RolloutState.QUEUED],
            open_groups=sizes.groups[GroupState.OPEN],
        )
        found = capacity(
            ahead=ahead,
            max_ahead=self._max_ahead,
            room=self._schedule.room(load),
            held_back=self._held_back(versions_behind),
        )
        return structs.replace(found, versions_behind=versions_behind)

    def _held_back(self, versions_behind: int) -> int:
        """Return how many of the slots would make a group too old, sampled from a policy so far behind the newest."""
        in_time = (self._recipe.admission.max_lag + 1 - versions_behind) * self._recipe.train.groups_per_batch
        return max(0, self._recipe.max_groups_ahead - in_time)
