"""Agent-RLVR: a second round of guided rollouts for a group without a success (Da and others 2025)."""

from typing import Any, cast

from quartet.config import Recipe
from quartet.config.section import Positive, Section
from quartet.errors import ConfigError
from quartet.manager.control.two_rounds import TwoRoundAllocator
from quartet.registry import find
from quartet.types import Group, Root, Round


class GuidedAllocator(TwoRoundAllocator):
    """Allocate N rollouts and, if all of them fail, further rollouts whose prompts contain `rollout.guidance`.

    N is `control.rollouts_per_group`. Guided rollouts are compared with the failures before them and trained without
    the guidance in their prompts. The published method trains by DPO on pairs of success and failure; here the recipe's
    credit compares them. A group has no guided round if one of its first N rollouts is not countable. Statistics of
    control, such as the success rate of a family, include guided rollouts.
    """

    class Settings(Section):
        guided_rollouts: Positive = 4
        """Number of guided rollouts of a group without a success."""

    may_guide = True
    settings: Settings
    source = "Agent-RLVR, arXiv 2506.11425, section 3: attempt, guidance after a failure, second attempt"

    @classmethod
    def check(cls, settings: Settings, recipe: Recipe) -> None:
        super().check(settings, recipe)
        if recipe.rollout.guidance.name == "none":
            raise ConfigError("control.allocator = 'guided' has no guidance to give", "set rollout.guidance")
        check_guidance(recipe)

    def second(self, group: Group) -> Round:
        if any(member.trajectory.success for member in group.members):
            return []
        return [Root(guided=True)] * self.settings.guided_rollouts


def check_guidance(recipe: Recipe) -> None:
    """Raise `ConfigError` if guidance cannot be removed from the recipe's prompts, or if guided rollouts are forked."""
    rollout = recipe.rollout
    loop, history = (cast(Any, find(kind, name)) for kind, name in _prompts(recipe))
    if not loop.removes_guidance or (loop.reads_history and history.samples):
        raise ConfigError(
            f"guidance cannot be removed from the prompts of the loop {rollout.loop.name!r} with the history "
            f"{rollout.history.name!r}, so it would be trained",
            "set rollout.loop = 'latest', or set control.allocator = 'fixed'",
        )
    if rollout.brancher.name != "none":
        raise ConfigError(
            f"the brancher {rollout.brancher.name!r} may fork a guided rollout, whose fork would have no guidance",
            "set rollout.brancher = 'none'",
        )


def _prompts(recipe: Recipe) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return kind and name of the two parts that build the prompts."""
    return ("loop", recipe.rollout.loop.name), ("history", recipe.rollout.history.name)
