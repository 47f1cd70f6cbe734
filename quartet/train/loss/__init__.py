"""Policy losses over flat response tokens. One class per file, chosen by `loss.name`."""

from collections.abc import Callable

from quartet import config
from quartet.registry import lookup
from quartet.train.loss.base import PolicyLoss
from quartet.train.loss.ppo_clip import PpoClip

LOSSES: dict[str, Callable[[config.Loss], PolicyLoss]] = {"ppo_clip": PpoClip}


def make_loss(section: config.Loss) -> PolicyLoss:
    """The loss a recipe names; raises `ConfigError` with the nearest name."""
    return lookup("loss", section.name, LOSSES)(section)
