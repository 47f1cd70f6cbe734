"""Log-probs of recorded tokens under a model, with the output head applied only where a trained token is predicted.

Most tokens of an agent's sequence are observations, so the output head, the largest matrix of a small model, is needed
at only a few percent of the positions.
"""

from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from quartet.errors import ConfigError
from quartet.train.branch_attention import attending_by_branch
from quartet.train.microbatch import Microbatch
from quartet.train.sight import Sight
from quartet.train.value_head import ValueHead


class Scores(NamedTuple):
    logprobs_T: torch.Tensor
    """Log-probs of the recorded tokens in nats, at the temperature of their sampling, over the full vocabulary."""
    entropies_T: torch.Tensor
    """Entropies of the full distribution at temperature 1, in nats."""
    values_T: torch.Tensor | None = None
    """Value head's estimate of the return, made before each token; None without a value head."""


def score(
    model: PreTrainedModel,
    microbatch: Microbatch,
    sight: Sight | None = None,
    *,
    value_head: ValueHead | None = None,
    entropy_gradient: bool = False,
) -> Scores:
    """Run one forward pass and return the scores of the microbatch's T trained tokens.

    `sight` supplies the pictures for a model that reads pictures. With `entropy_gradient`, the entropies carry a
    gradient. Padding is on the right, so with causal attention no real token attends to it.
    """
    with attending_by_branch(model, microbatch) as mask_and_branches:
        hidden_BLD = _decoder(model)(
            input_ids=microbatch.ids_BL,
            position_ids=microbatch.position_ids_BL,
            use_cache=False,
            **(sight.inputs(microbatch) if sight else {}),
            **mask_and_branches,
        ).last_hidden_state
    hidden_TD = hidden_BLD.flatten(0, 1).index_select(0, microbatch.sources_T)
    logits_TV = _head(model)(hidden_TD).float()
    if sight is not None:
        logits_TV = sight.without_placeholders(logits_TV)
    scaled_TV = (logits_TV / microbatch.temperatures_T.unsqueeze(1)).log_softmax(dim=-1)
    logprobs_T = scaled_TV.gather(1, microbatch.targets_T.unsqueeze(1)).squeeze(1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        plain_TV = logits_TV.log_softmax(dim=-1)
        entropies_T = -(plain_TV.exp() * plain_TV).sum(dim=-1)
    return Scores(logprobs_T, entropies_T, value_head(hidden_TD) if value_head is not None else None)


@torch.no_grad()
def require_plain_head(model: PreTrainedModel) -> None:
    """Raise `ConfigError` for an architecture that changes the logits after the output matrix (soft-capping, scaling).

    `score` applies only the decoder and the output matrix, so its log-probs would be wrong.
    """
    ids_1L = torch.arange(8, device=model.device).unsqueeze(0)
    hidden_1LD = _decoder(model)(input_ids=ids_1L, use_cache=False).last_hidden_state
    ours_1LV, theirs_1LV = _head(model)(hidden_1LD), model(input_ids=ids_1L, use_cache=False).logits
    if not torch.allclose(ours_1LV.float(), theirs_1LV.float(), atol=1e-3, rtol=1e-3):
        raise ConfigError(
            f"{type(model).__name__} changes its logits after the output matrix, which the trainer does not do",
            "use an architecture without logit scaling or soft-capping",
        )


def _decoder(model: PreTrainedModel) -> torch.nn.Module:
    return getattr(model, model.base_model_prefix)


def _head(model: PreTrainedModel) -> torch.nn.Module:
    head = model.get_output_embeddings()
    if head is None:
        raise ConfigError(f"{type(model).__name__} has no output matrix", "model.path must be a causal language model")
    return head
