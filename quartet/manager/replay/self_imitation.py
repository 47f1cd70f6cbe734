"""Self-imitation: an earlier success of the family joins a group without successes, to be imitated."""

from typing import Annotated

from msgspec.structs import replace
from pydantic import Field

from quartet.config import Recipe
from quartet.config.section import Positive, Section
from quartet.ledger import Ledger
from quartet.manager.replay.base import Replay, first_readable
from quartet.manager.replay.success_pool import SuccessPool, check_only_imitates
from quartet.types import Group, ReplayRule


class SelfImitation(Replay):
    """Add stored successes of the family to a group without successes, as anchors, which the loss term `nll` imitates.

    A success counts where the policy expects to fail, and only there: that is the positive part of return minus value
    by which self-imitation learning weights its replay, with a family's failing group in place of a value. A pool of
    one task's successes rarely helps such a group, because a task that always fails has none. Successes of other tasks
    of the family show how the family is solved.
    """

    class Settings(Section):
        successes: Positive = 1
        """Number of stored successes that join a group."""
        max_replays: Positive = 8
        """Maximum number of groups that an entry joins."""
        max_lag: Annotated[int, Field(ge=0)] | None = None
        """Maximum lag of a stored success, by its oldest token. If unset, there is no limit. Demonstrations have no
        lag."""

    settings: Settings
    source = "Self-Imitation Learning, arXiv 1806.05635, section 3: imitate past returns above the value"

    def __init__(self, settings: Settings, recipe: Recipe, ledger: Ledger) -> None:
        super().__init__(settings, recipe, ledger)
        self._pool = SuccessPool(SuccessPool.Settings(rule=ReplayRule.ANCHOR), recipe, ledger)

    @classmethod
    def check(cls, settings: Settings, recipe: Recipe) -> None:
        check_only_imitates("self_imitation", recipe)

    @classmethod
    def rules(cls, settings: Settings, recipe: Recipe) -> frozenset[ReplayRule]:
        return frozenset({ReplayRule.ANCHOR})

    def compose(self, group: Group) -> Group:
        if not group.members or any(member.trajectory.success for member in group.members):
            return group
        usable = self.ledger.pool.usable_of_family(group.task, self.settings.max_replays, self.settings.max_lag)
        stored = first_readable(self.shuffled(group, usable), self.settings.successes, self._pool.load)
        return replace(group, members=[*group.members, *stored])

    def observe(self, group: Group) -> None:
        self._pool.observe(group)
