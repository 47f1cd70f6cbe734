"""Policy losses over flat response tokens. One class per file, chosen by `loss.name`, imported when it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from quartet import config
from quartet.registry import lookup

if TYPE_CHECKING:
    from quartet.train.loss.base import PolicyLoss


def _ppo_clip(section: config.Loss) -> PolicyLoss:
    from quartet.train.loss.ppo_clip import PpoClip

    return PpoClip(section)


def _gspo(section: config.Loss) -> PolicyLoss:
    from quartet.train.loss.gspo import Gspo

    return Gspo(section)


LOSSES: dict[str, Callable[[config.Loss], PolicyLoss]] = {"ppo_clip": _ppo_clip, "gspo": _gspo}


def make_loss(section: config.Loss) -> PolicyLoss:
    """The loss a recipe names; raises `ConfigError` with the nearest name."""
    return lookup("loss", section.name, LOSSES)(section)
