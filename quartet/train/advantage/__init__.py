"""Advantages: from the rewards of a group to one number per trajectory. One class per file, named in the recipe."""

from collections.abc import Callable

from quartet import config
from quartet.registry import lookup
from quartet.train.advantage.base import Advantage
from quartet.train.advantage.grpo import Grpo
from quartet.train.advantage.grpo_steps import GrpoSteps

ADVANTAGES: dict[str, Callable[[config.Advantage], Advantage]] = {"grpo": Grpo, "grpo_steps": GrpoSteps}


def make_advantage(section: config.Advantage) -> Advantage:
    """The estimator a recipe names; raises `ConfigError` with the nearest name."""
    return lookup("advantage", section.name, ADVANTAGES)(section)
