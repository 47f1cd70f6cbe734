"""Value head whose gradient also trains the layers that it shares with the policy, as in PPO's released code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from quartet.config.section import PositiveFloat
from quartet.train.critic.head import Head

if TYPE_CHECKING:
    import torch

    from quartet.train.packing.microbatch import Microbatch


class HeadWithGradient(Head):
    """The value head of `head`, with a gradient into the policy.

    The policy's gradient, its norm and its bound then include the value loss, at the policy's learning rate. With a
    credit that gives few tokens a return (see `value`), this part of the gradient is as much smaller.
    """

    class Settings(Head.Settings):
        gradient_weight: PositiveFloat = 1.0
        """Factor on the gradient into the policy; the head's own gradient stays as it is. The weight of the
        term `value` is a further factor."""

    settings: Settings
    source = "PPO, arXiv 1707.06347, equation 9, with shared parameters"

    def values(self, microbatch: Microbatch, hidden_TD: Callable[[], torch.Tensor]) -> torch.Tensor:
        shared_TD = hidden_TD()
        fixed_TD = shared_TD.detach()
        return self.module(fixed_TD + self.settings.gradient_weight * (shared_TD - fixed_TD))
