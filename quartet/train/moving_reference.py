"""Reference policy that follows the trained policy, instead of staying at the weights that the run started from."""

import torch
from transformers import PreTrainedModel

from quartet.config import Reference


class MovingReference:
    """Moves the weights of `model` towards those of `policy`. A checkpoint holds them."""

    def __init__(self, model: PreTrainedModel, policy: PreTrainedModel, section: Reference) -> None:
        self.model, self._policy, self._section = model, policy, section

    def follow(self, train_step: int) -> None:
        """Move the reference if it is due after this train step."""
        moves, rest = divmod(train_step, self._section.train_steps_per_move)
        most = self._section.max_moves
        if rest == 0 and (most is None or moves <= most):
            self._move(self._section.move_share)

    def reset(self) -> None:
        """Copy the policy, which is at its initial weights."""
        self._move(1.0)

    @torch.no_grad()
    def _move(self, share: float) -> None:
        """Move each weight by this share of the distance; with 1 the copy is exact."""
        for own, trained in zip(self.model.parameters(), self._policy.parameters(), strict=True):
            own.lerp_(trained.to(own), share)
