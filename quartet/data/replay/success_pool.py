"""DART's experience pool: when all rollouts of a task fail, one earlier success of the same task joins them."""

import random

from msgspec.structs import replace

from quartet.config import Recipe
from quartet.data.ledger import Ledger
from quartet.data.replay.base import Replay
from quartet.types import Group, GroupMember, Purpose


class SuccessPool(Replay):
    """A group without a single success has no contrast; one stored success gives it one (arXiv 2509.23866).

    `insert` adds the success, `substitute` lets it take the place of the group's first member, as the released code
    does with the oldest row. Which of the task's stored successes: a `random` one as in the paper, or the `newest` as
    in the code. The draw is keyed by the group, so a restarted run makes the same one. An entry joins at most
    `max_replays` groups. Demonstrations (`quartet.data.exchange.demonstrations`) are entries like any other, but for
    the rule.
    """

    def __init__(self, recipe: Recipe, ledger: Ledger) -> None:
        self._knobs, self._seed, self._ledger = recipe.replay, recipe.seed, ledger
        self._rules = {
            Purpose.TRAIN: self._knobs.rule,
            Purpose.DEMONSTRATION: self._knobs.demonstration_rule,
        }

    def compose(self, group: Group) -> Group:
        if not group.members or any(member.trajectory.success for member in group.members):
            return group
        stored = self._pick(group)
        if stored is None:
            return group
        kept = group.members[1:] if self._knobs.mode == "substitute" else group.members
        return replace(group, members=[*kept, stored])

    def observe(self, group: Group) -> None:
        successes = [member.rollout_id for member in group.members if member.trajectory.success]
        if successes:
            self._ledger.store_successes(group.task, successes, self._knobs.entries_per_task)

    def _pick(self, group: Group) -> GroupMember | None:
        """A stored success of the group's task that can be read, or None."""
        rollouts = self._ledger.stored_successes(group.task, self._knobs.max_replays, self._knobs.max_lag)
        if self._knobs.choice == "random":
            random.Random(f"{self._seed}/replay/{group.group_id}").shuffle(rollouts)
        members = (self._ledger.load_stored(rollout_id, self._rules) for rollout_id in rollouts)
        return next((member for member in members if member is not None), None)
