"""Replay part for runs without replay."""

from typing import Any

from quartet.config import Recipe
from quartet.manager.replay.base import Replay
from quartet.types import Group, ReplayRule


class NoReplay(Replay):
    """Add no stored rollout to a group."""

    @classmethod
    def rules(cls, settings: Any, recipe: Recipe) -> frozenset[ReplayRule]:
        return frozenset()

    def compose(self, group: Group) -> Group:
        return group
