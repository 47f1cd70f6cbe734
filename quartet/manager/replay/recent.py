"""ReMix's replay: rollouts of the newest policies, successes and failures, join every group."""

from typing import Annotated

from msgspec.structs import replace
from pydantic import Field

from quartet.config import Recipe
from quartet.config.section import Positive, Section
from quartet.errors import ConfigError
from quartet.manager.replay.base import Replay, first_readable
from quartet.types import Group, GroupMember, Purpose, ReplayRule


class Recent(Replay):
    """Add stored rollouts of the same task to each group, until they are `share` of its members.

    They are at most `policies` train steps old and are chosen at random, whatever their reward, so that the group's
    mean is not biased by the choice. Their importance ratio uses the recorded log-probs (`stored`); the loss term
    `ppo_mixed` clips it around its value at the start of the train step. A task must recur within that time, so the
    recipe needs few tasks (`control.train_seeds_per_family`). At most `replay.entries_per_task` rollouts of a task are
    kept.
    """

    class Settings(Section):
        share: Annotated[float, Field(ge=0, lt=1)] = 0.4
        """Share of stored rollouts in a group (p)."""
        policies: Positive = 2
        """Maximum lag in train steps of a stored rollout, by its oldest token (N)."""
        max_replays: Positive = 8
        """Maximum number of groups that an entry joins."""
        last_train_step: Positive | None = None
        """Train step after which no group gets stored rollouts (ReMix's T); unset: all groups do."""

    settings: Settings
    source = "ReMix, arXiv 2507.06892: mix-policy proximal policy gradient"

    @classmethod
    def check(cls, settings: Settings, recipe: Recipe) -> None:
        if recipe.replay.demonstrations:
            raise ConfigError(
                "replay.name = 'recent' would replay demonstrations, which have no age and no log-probs",
                "remove replay.demonstrations, or set replay.name = 'success_pool'",
            )

    @classmethod
    def rules(cls, settings: Settings, recipe: Recipe) -> frozenset[ReplayRule]:
        return frozenset({ReplayRule.STORED})

    def compose(self, group: Group) -> Group:
        last = self.settings.last_train_step
        if last is not None and self.ledger.batches.train_step() >= last:
            return group
        share = self.settings.share
        usable = self.ledger.pool.usable(group.task, self.settings.max_replays, self.settings.policies)
        wanted = round(share / (1 - share) * len(group.members))
        stored = first_readable(self.shuffled(group, usable), wanted, self._load)
        return replace(group, members=[*group.members, *stored])

    def observe(self, group: Group) -> None:
        rollouts = [member.rollout_id for member in group.members]
        if rollouts:
            self.ledger.pool.store(group.task, rollouts, self.recipe.replay.entries_per_task)

    def _load(self, rollout_id: int) -> GroupMember | None:
        return self.ledger.pool.load(rollout_id, {Purpose.TRAIN: ReplayRule.STORED})
