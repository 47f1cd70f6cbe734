"""DART's experience pool: if all rollouts of a task fail, one earlier success of the same task joins their group."""

from typing import Annotated, Literal

from msgspec.structs import replace
from pydantic import Field

from quartet.config import Recipe
from quartet.config.section import Positive, Section
from quartet.errors import ConfigError
from quartet.manager.replay.base import Replay, first_readable
from quartet.registry import build
from quartet.types import Group, GroupMember, MemberUse, Purpose, ReplayRule


class SuccessPool(Replay):
    """Add a stored success to a group without successes, which usually has no contrast (arXiv 2509.23866).

    `insert` adds the success; `substitute` replaces the group's first member with it, as the released code replaces the
    oldest row. The success is chosen at `random`, as in the paper, or is the `newest` one, as in the code. The random
    draw is keyed by the group, so a restarted run repeats it. An entry joins at most `max_replays` groups.
    Demonstrations (`quartet.exchange.demonstrations`) are ordinary entries, except that `replay.demonstration_rule` is
    their rule.
    """

    class Settings(Section):
        rule: ReplayRule = ReplayRule.STORED
        """Importance ratio of a replayed success: `stored` uses its recorded log-probs, `recompute` sets it to 1. An
        `anchor` is not compared with the group: supervised loss terms, such as `nll`, imitate it."""
        mode: Literal["insert", "substitute"] = "insert"
        """`insert` adds the success to the group, `substitute` replaces the group's first member."""
        choice: Literal["random", "newest"] = "random"
        """Choice among the task's stored successes."""
        max_replays: Positive = 8
        """Maximum number of groups that an entry joins."""
        max_lag: Annotated[int, Field(ge=0)] | None = None
        """Maximum lag of a stored success, by its oldest token; older successes do not join. If unset, there is no
        limit, since `admission.max_lag` does not apply to replays. Demonstrations have no lag."""

    settings: Settings
    source = "DART, arXiv 2509.23866, experience pool"

    @classmethod
    def check(cls, settings: Settings, recipe: Recipe) -> None:
        imitated = (MemberUse.ANCHOR in build(term).uses for term in recipe.loss.terms)
        if ReplayRule.ANCHOR in cls.rules(settings, recipe) and not any(imitated):
            raise ConfigError(
                "stored successes are replayed as anchors, and no term of loss.terms imitates anchors",
                "add 'nll' to loss.terms, or choose another rule",
            )

    @classmethod
    def rules(cls, settings: Settings, recipe: Recipe) -> frozenset[ReplayRule]:
        return frozenset({settings.rule, recipe.replay.demonstration_rule})  # `quartet ledger import` adds some, too

    def compose(self, group: Group) -> Group:
        if not group.members or any(member.trajectory.success for member in group.members):
            return group
        stored = self.pick(group)
        if stored is None:
            return group
        kept = group.members[1:] if self.settings.mode == "substitute" else group.members
        return replace(group, members=[*kept, stored])

    def observe(self, group: Group) -> None:
        successes = [member.rollout_id for member in group.members if member.trajectory.success]
        if successes:
            self.ledger.pool.store(group.task, successes, self.recipe.replay.entries_per_task)

    def pick(self, group: Group) -> GroupMember | None:
        """Return a readable stored success of the group's task, or None."""
        rollouts = self.ledger.pool.usable(group.task, self.settings.max_replays, self.settings.max_lag)
        order = self.shuffled if self.settings.choice == "random" else self.foreign
        return next(iter(first_readable(order(group, rollouts), 1, self.load)), None)

    def load(self, rollout_id: int) -> GroupMember | None:
        """Return a stored success as a member with the rule for its origin, or None if its blob is damaged."""
        rules = {Purpose.TRAIN: self.settings.rule, Purpose.DEMONSTRATION: self.recipe.replay.demonstration_rule}
        return self.ledger.pool.load(rollout_id, rules)


def check_only_imitates(replay: str, recipe: Recipe) -> None:
    """Refuse a recipe with a replay whose stored successes are all anchors, if a term or a rule does not fit them."""
    SuccessPool.check(SuccessPool.Settings(rule=ReplayRule.ANCHOR), recipe)
    if recipe.replay.demonstrations and recipe.replay.demonstration_rule is not ReplayRule.ANCHOR:
        raise ConfigError(
            f"replay.name = {replay!r} only imitates what it adds, but replay.demonstration_rule = "
            f"{recipe.replay.demonstration_rule.value!r} compares demonstrations with the group",
            "set replay.demonstration_rule to 'anchor'",
        )
