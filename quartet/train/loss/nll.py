"""Supervised loss term: maximum likelihood of the tokens of anchors.

Anchors are demonstrations or stored successes that join a batch only to be imitated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from quartet.config.section import Section
from quartet.errors import ConfigError
from quartet.registry import find, own_settings
from quartet.train.loss.base import LossInput, LossTerm, weighted_sum
from quartet.types import MemberUse, ReplayRule

if TYPE_CHECKING:  # the command line validates a recipe without loading torch
    import torch

    from quartet.config import Recipe


class Nll(LossTerm):
    """Minus the weighted sum of the log-probs of the chosen members' tokens, independent of their advantage.

    The weights are those of `loss.aggregation`. Over anchors they sum to 1 (not with `fixed_divisor`), so with the
    default `uses` and `token_mean` the term is minus a mean. Fresh and replayed members are normalised together: if one
    of the two is chosen, its weights sum to its share of both, or with `loss.replay_share` to that setting's share. The
    metric `train/nll_nats` has the same weights.
    """

    class Settings(Section):
        uses: Annotated[list[MemberUse], Field(min_length=1)] = [MemberUse.ANCHOR]
        """Uses of the members whose tokens are imitated: `anchor`, `replay`, `fresh`."""

    settings: Settings
    source = "CHORD, arXiv 2508.11408: a supervised term beside GRPO"
    metrics = {"train/nll_nats": "nats: minus the weighted sum of the log-probs that the loss term `nll` raises"}

    @property
    def uses(self) -> frozenset[MemberUse]:
        return frozenset(self.settings.uses)

    @classmethod
    def check(cls, settings: Settings, recipe: Recipe) -> None:
        super().check(settings, recipe)
        replay: Any = find("replay", recipe.replay.name)
        rules = replay.rules(own_settings(recipe.replay), recipe)
        if set(settings.uses) == {MemberUse.ANCHOR} and ReplayRule.ANCHOR not in rules:
            raise ConfigError(
                f"the loss term nll imitates anchors, but no member is replayed as one by {recipe.replay.name!r}",
                "choose the replay 'reference' or 'self_imitation', or replay.rule = 'anchor' of 'success_pool' "
                "(replay.demonstration_rule = 'anchor' for its demonstrations), or change the term's `uses`",
            )

    def loss(self, tokens: LossInput) -> tuple[torch.Tensor, dict[str, float]]:
        loss = -weighted_sum(tokens, tokens.logprobs_T)
        return loss, {"nll_nats": loss.item()}
