"""PPO's clipped loss with bounds that depend on the confidence at the end of a sequence (ECHO)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

from pydantic import Field

from quartet.config.section import Positive
from quartet.train.loss.base import LossInput
from quartet.train.loss.ppo_clip import PpoClip

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch


class PpoConfident(PpoClip):
    """The loss of `ppo_clip` with both bounds multiplied by e / `max_clip`, where e depends on the branch.

    e = `min_clip` + (`max_clip` - `min_clip`) * sigmoid(`steepness` * (1 - c)), and c is the mean probability, at the
    start of the train step, of the branch's last `tail_tokens` trained tokens. The sigmoid is at least 1/2, so e lies
    in the upper half between its bounds: the published form, which reaches `min_clip` never. ECHO clips at 1 +- e; with
    `clip_low = clip_high = max_clip` this is the same.
    """

    class Settings(PpoClip.Settings):
        min_clip: Annotated[float, Field(ge=0)] = 0.05
        """Lower end of e."""
        max_clip: Annotated[float, Field(gt=0)] = 0.2
        """Upper end of e, for a branch without confidence."""
        steepness: Annotated[float, Field(ge=0)] = 4.0
        """Factor of 1 - c in the sigmoid."""
        tail_tokens: Positive = 16
        """Number of trained tokens at the end of a branch whose probabilities are averaged."""

    source = "ECHO, adaptive clip of its released code, core_algos.py"

    def clip_scale(self, tokens: LossInput) -> torch.Tensor:
        settings = cast("PpoConfident.Settings", self.settings)
        confidence_T = tail_means(tokens.old_logprobs_T.exp(), tokens.branches_T, settings.tail_tokens)
        openness_T = (settings.steepness * (1 - confidence_T)).sigmoid()
        return (settings.min_clip + (settings.max_clip - settings.min_clip) * openness_T) / settings.max_clip


def tail_means(values_T: torch.Tensor, branches_T: torch.Tensor, count: int) -> torch.Tensor:
    """Return `[T]`: the mean of the last `count` values of each token's branch."""
    numbers_B, places_T = branches_T.unique(return_inverse=True)
    means = [values_T[places_T == place][-count:].mean() for place in range(len(numbers_B))]
    return values_T.new_tensor(means)[places_T]
