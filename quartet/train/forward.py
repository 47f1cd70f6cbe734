"""Log-probs of recorded tokens under a model, with the output head applied only where a trained token is predicted.

Most tokens of an agent's sequence are observations, so the output head, the largest matrix of a small model, is needed
at only a few percent of the positions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from transformers import PreTrainedModel

from quartet.errors import ConfigError
from quartet.train.kernel.layer_ops import TokenScores, layer_kernels
from quartet.train.packing.attention import attending_by_branch
from quartet.train.packing.microbatch import Microbatch
from quartet.train.packing.sight import Sight

if TYPE_CHECKING:
    from quartet.train.critic.base import Critic


class Scores(NamedTuple):
    logprobs_T: torch.Tensor
    """Log-probs of the recorded tokens in nats, at the temperature of their sampling, over the full vocabulary."""
    entropies_T: torch.Tensor
    """Entropies of the full distribution at temperature 1, in nats."""
    values_T: torch.Tensor | None = None
    """Critic's estimate of the return, made before each token; None without a critic."""


def score(
    model: PreTrainedModel,
    microbatch: Microbatch,
    sight: Sight | None = None,
    *,
    critic: "Critic | None" = None,
    entropy_gradient: bool = False,
) -> Scores:
    """Run one forward pass and return the scores of the microbatch's T trained tokens.

    `sight` supplies the pictures for a model that reads pictures. With `entropy_gradient`, the entropies carry a
    gradient. Padding is on the right, so with causal attention no real token attends to it.
    """
    logits_TV, hidden_TD = forward(model, microbatch, sight)
    if sight is not None:
        logits_TV = sight.without_placeholders(logits_TV)
    logprobs_T, entropies_T = _of_tokens(logits_TV, microbatch, entropy_gradient=entropy_gradient)
    return Scores(logprobs_T, entropies_T, critic.values(microbatch, lambda: hidden_TD) if critic else None)


def _of_tokens(
    logits_TV: torch.Tensor, microbatch: Microbatch, *, entropy_gradient: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probs and entropies `[T]`."""
    targets_T, temperatures_T = microbatch.targets_T, microbatch.temperatures_T
    if logits_TV.is_cuda:
        from quartet.train.gpu.token_scores import FusedTokenScores  # needs Triton

        logprobs_T, entropies_T = FusedTokenScores.apply(logits_TV, targets_T, temperatures_T)
        return logprobs_T, entropies_T if entropy_gradient else entropies_T.detach()
    logits_TV = logits_TV.float()
    library = layer_kernels(logits_TV)
    if library is not None:
        logprobs_T, entropies_T = TokenScores.apply(logits_TV, targets_T, temperatures_T, library)
        return logprobs_T, entropies_T if entropy_gradient else entropies_T.detach()
    scaled_TV = (logits_TV / temperatures_T.unsqueeze(1)).log_softmax(dim=-1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        plain_TV = logits_TV.log_softmax(dim=-1)
        entropies_T = -(plain_TV.exp() * plain_TV).sum(dim=-1)
    return scaled_TV.gather(1, targets_T.unsqueeze(1)).squeeze(1), entropies_T


def forward(
    model: PreTrainedModel, microbatch: Microbatch, sight: Sight | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits `[T, V]` and the hidden states `[T, D]` that predict the microbatch's tokens.

    The pass goes through the model's own `forward`, since FSDP gathers and shards weights there.
    """
    with arguments(model, microbatch, sight) as given, _head_at(model, microbatch.sources_T) as hidden:
        logits_TV = model(**given).logits
    return logits_TV, hidden[0]


@contextmanager
def arguments(model: PreTrainedModel, microbatch: Microbatch, sight: Sight | None) -> Iterator[dict[str, Any]]:
    """Yield the arguments of the forward pass of a model, or of its decoder alone, inside the block."""
    dtype, device = microbatch.compute_dtype, microbatch.ids_BL.device
    autocast = torch.autocast(device.type, dtype, enabled=dtype != torch.float32)
    with autocast, attending_by_branch(model, microbatch) as mask_and_branches:
        yield {
            "input_ids": microbatch.ids_BL,
            "position_ids": microbatch.position_ids_BL,
            "use_cache": False,
            **(sight.inputs(model, microbatch) if sight else {}),
            **mask_and_branches,
        }


@contextmanager
def _head_at(model: PreTrainedModel, sources_T: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """Apply the output head only at the positions `sources_T`; yield a list that gets the hidden states `[T, D]` there.

    What the model does to the logits after the head, such as soft-capping, is elementwise and applies to `[T, V]` too.
    """
    head = model.get_output_embeddings()
    if head is None:
        raise ConfigError(f"{type(model).__name__} has no output matrix", "set model.path to a causal language model")
    hidden: list[torch.Tensor] = []

    def select(head: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[torch.Tensor]:
        hidden.append(inputs[0].flatten(0, 1).index_select(0, sources_T))
        return (hidden[0],)

    handle = head.register_forward_pre_hook(select)
    try:
        yield hidden
    finally:
        handle.remove()
