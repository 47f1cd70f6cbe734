"""Reference policy that follows the trained policy, instead of staying at the weights that the run started from."""

import torch
from transformers import PreTrainedModel

from quartet.config import Reference


class MovingReference:
    """Moves the weights of `model` towards those of `policy`. A checkpoint holds them."""

    def __init__(self, model: PreTrainedModel, policy: PreTrainedModel, section: Reference) -> None:
        self.model, self._policy, self._section = model, policy, section
        self.followed: int | None = 0
        """Newest train step that the reference has followed, 0 before the first one. A checkpoint holds it, since a
        move may be due that the next step makes. None after loading one of an older version, which lacks it."""

    def follow(self, train_step: int) -> None:
        """Move the reference if a move is due at this train step, or was due at one before that was not followed."""
        every, most = self._section.train_steps_per_move, self._section.max_moves
        before = train_step - 1  # after a roll-back, later steps come again
        followed = before if self.followed is None else min(before, self.followed)
        if train_step // every > followed // every and (most is None or followed // every < most):
            self._move(self._section.move_share)
        self.followed = train_step

    def reset(self) -> None:
        """Copy the policy, which is at its initial weights."""
        self._move(1.0)
        self.followed = 0

    @torch.no_grad()
    def _move(self, share: float) -> None:
        """Move each weight by this share of the distance; with 1 the copy is exact."""
        for own, trained in zip(self.model.parameters(), self._policy.parameters(), strict=True):
            own.lerp_(trained.to(own), share)
