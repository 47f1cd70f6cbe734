"""Admission: how many groups may start now. Computed from the ledger each time, never from counters.

A group holds a slot from its admission until it is trained or dropped. With `(max_lag + 1) x groups_per_batch` slots a
group admitted at version v has at most that many groups before it and with it in the line of training, so by the time
its turn comes the policy has moved on by at most `max_lag` versions, on average. The queue of rollouts is kept short
as well: a rollout that waits in the queue holds a slot and produces nothing.

With `on_late = "wait"` a group starts only when the engine has taken the newest policy, or refused it. The version that
the engine serves then is a lower bound of all its tokens; a roll-back lowers that of open groups.

Liveness: while the trainer waits, fewer than `groups_per_batch` groups are trainable, or it waits for unfinished ones.
Then a slot is free, or a group is open or closed; an open group has a rollout queued or running, or is about to close.
"""

from msgspec import Struct

from quartet.config import Recipe
from quartet.data.ledger import Ledger
from quartet.types import RolloutState


class Capacity(Struct, frozen=True, kw_only=True):
    """How many groups may start, and if none, what that waits for and what ends it."""

    groups: int
    waiting_for: str = ""
    ends_when: str = ""


def capacity(*, ahead: int, max_ahead: int, queued: int, sessions: int, rollouts_per_group: int) -> Capacity:
    """The rule, on plain numbers: `ahead` groups hold slots, `queued` rollouts wait for one of the `sessions`.

    Admits until about two rollouts wait per session; into an empty queue always at least one group.
    """
    by_lag = max_ahead - ahead
    by_queue = max((2 * sessions - queued) // rollouts_per_group, 1 if queued == 0 else 0)
    # The numbers stand in `ends_when`, so that a wait goes on being the same wait while they change.
    if by_lag <= 0:
        return Capacity(
            groups=0, waiting_for="an admission slot", ends_when=f"a batch is trained: {ahead}/{max_ahead} groups ahead"
        )
    if by_queue <= 0:
        return Capacity(
            groups=0, waiting_for="room in the queue", ends_when=f"workers claim some of {queued} queued rollouts"
        )
    return Capacity(groups=min(by_lag, by_queue))


class Admission:
    """The rule applied to a run."""

    def __init__(self, recipe: Recipe, ledger: Ledger) -> None:
        self._recipe, self._ledger = recipe, ledger

    def capacity(self) -> Capacity:
        """What may start now."""
        if self._recipe.admission.on_late == "wait" and not self._ledger.latest_is_settled():
            return Capacity(groups=0, waiting_for="the engine", ends_when="it takes, or refuses, the newest policy")
        sizes = self._ledger.queue_sizes()
        return capacity(
            ahead=sum(sizes.groups.values()),
            max_ahead=self._recipe.max_groups_ahead,
            queued=sizes.rollouts[RolloutState.QUEUED],
            sessions=self._recipe.env.sessions,
            rollouts_per_group=self._recipe.control.rollouts_per_group,
        )
