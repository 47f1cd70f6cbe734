"""No replay."""

from quartet.manager.replay.base import Replay
from quartet.types import Group


class NoReplay(Replay):
    """Train on every rollout once."""

    def compose(self, group: Group) -> Group:
        return group
