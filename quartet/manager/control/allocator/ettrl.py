"""ETTRL: forks of finished rollouts at the calls with the highest entropy."""

from typing import Any

from quartet.config import Recipe
from quartet.config.section import Positive, Section
from quartet.errors import ConfigError
from quartet.manager.control.base import RolloutAllocator
from quartet.registry import find
from quartet.types import Call, Fork, Group, Root, Round, Task, Trajectory


class EttrlAllocator(RolloutAllocator):
    """Allocate M rollouts, then fork each of them before its N calls with the highest entropy, into B children each.

    M is `control.rollouts_per_group`. A group has M (1 + B N) rollouts. If the forks lie anywhere with equal
    probability, a child samples half of its tokens, so the group has (1 + B N / 2) / (1 + B N) of the tokens of
    independent rollouts. ETTRL forks at tokens; here it is the call that is sampled again, as far as it is not the
    first one of the rollout. The entropy of a call is the largest of its tokens'.
    """

    class Settings(Section):
        calls: Positive = 2
        """Number of calls of a rollout before which it is forked (N)."""
        children: Positive = 2
        """Number of children before each of them (B)."""

    settings: Settings
    may_fork = True
    source = "ETTRL, entropy-fork tree majority rollout, arXiv 2508.11356; calls for tokens"

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        engine: Any = find("engine", recipe.engine.name)
        if not engine.reports_entropies:
            raise ConfigError(
                f"the allocator ettrl needs entropies, and the engine {recipe.engine.name!r} reports none",
                "set engine.name = 'torch'",
            )

    def plan(self, task: Task) -> list[Root]:
        return [Root()] * self.context.recipe.control.rollouts_per_group

    def more(self, group: Group) -> Round:
        if any(member.trajectory.parent for member in group.members):
            return []
        return [
            Fork(rollout_id=member.rollout_id, call_index=index - 1)
            for member in group.members
            for index in uncertain_calls(member.trajectory, self.settings.calls)
            for _ in range(self.settings.children)
        ]


def uncertain_calls(trajectory: Trajectory, count: int) -> list[int]:
    """Return the indices of the `count` calls with the highest entropy, without the first call, in ascending order."""
    calls = trajectory.calls
    return sorted(sorted(range(1, len(calls)), key=lambda index: -_entropy_nats(calls[index]))[:count])


def _entropy_nats(call: Call) -> float:
    return max(call.response.entropies, default=0.0)
