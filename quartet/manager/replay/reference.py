"""Supervised learning on reference data during RL: a stored success of the task joins every group, to be imitated."""

from typing import Annotated, Literal

from msgspec.structs import replace
from pydantic import Field

from quartet.config import Recipe
from quartet.config.section import Positive, Section
from quartet.ledger import Ledger
from quartet.manager.replay.base import Replay
from quartet.manager.replay.success_pool import SuccessPool, check_only_imitates
from quartet.types import Group, ReplayRule


class Reference(Replay):
    """Add a demonstration or a stored success of the task to every group, as an anchor.

    Anchors are not compared with the group; a supervised loss term such as `nll` imitates them, so the policy does not
    forget the reference data while it learns by reward. A group of a task without a stored success gets no anchor. The
    filter `mixed_outcome` keeps a group of failures for its anchor. Anchors do not count towards
    `admission.min_rollouts_per_group`, nor in the success rate of the filter `accuracy_band`.
    """

    class Settings(Section):
        choice: Literal["random", "newest"] = "random"
        """Choice among the task's stored successes."""
        max_replays: Positive = 1000
        """Maximum number of groups that an entry joins."""
        max_lag: Annotated[int, Field(ge=0)] | None = None
        """Maximum lag of a stored success, by its oldest token; older successes do not join. If unset, there is no
        limit. Demonstrations have no lag."""

    settings: Settings
    source = "RLinf-Co: a supervised loss on reference data beside the policy's, factor 0.2 (documentation of RLinf)"

    def __init__(self, settings: Settings, recipe: Recipe, ledger: Ledger) -> None:
        super().__init__(settings, recipe, ledger)
        self._pool = SuccessPool(_as_pool(settings), recipe, ledger)

    @classmethod
    def check(cls, settings: Settings, recipe: Recipe) -> None:
        check_only_imitates("reference", recipe)

    @classmethod
    def rules(cls, settings: Settings, recipe: Recipe) -> frozenset[ReplayRule]:
        return frozenset({ReplayRule.ANCHOR})

    def compose(self, group: Group) -> Group:
        stored = self._pool.pick(group) if group.members else None
        return replace(group, members=[*group.members, stored]) if stored else group

    def observe(self, group: Group) -> None:
        self._pool.observe(group)


def _as_pool(settings: Reference.Settings) -> SuccessPool.Settings:
    return SuccessPool.Settings(rule=ReplayRule.ANCHOR, **settings.model_dump())
