"""Replay part for runs without replay."""

from quartet.manager.replay.base import Replay
from quartet.types import Group


class NoReplay(Replay):
    """Add no stored rollout to a group."""

    def compose(self, group: Group) -> Group:
        return group
