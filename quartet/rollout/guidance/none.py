"""Guidance of runs without guided rollouts."""

from quartet.rollout.guidance.base import Guidance, Guide
from quartet.types import Task


class NoGuidance(Guidance):
    """Give no advice."""

    def guide(self, task: Task) -> Guide:
        return lambda _: ""
