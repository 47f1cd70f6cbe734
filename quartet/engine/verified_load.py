"""Verified loading of weights: a copy of the model scores the canary, then the weights are swapped in place.

The canary is a set of token sequences whose log-probs the trainer publishes with each policy. After the swap, the
engine's forward pass is compared with the model's forward pass in `transformers`. If they differ, the old weights are
restored.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from quartet.crash_points import crash_point
from quartet.engine.agreement import OwnPass, disagreement, own_pass
from quartet.engine.forward import Forward
from quartet.errors import CheckpointError
from quartet.policy.canary import has_canary, measure_canary
from quartet.policy.files import raising_checkpoint_errors
from quartet.policy.publisher.base import Publisher
from quartet.policy.weights import swap_weights, with_weights

MAX_CANARY_GAP_NATS = 1e-3
"""Maximum gap in nats if engine and trainer score the same tokens with the same float32 weights."""
MAX_CANARY_GAP_NATS_REDUCED = 0.1
"""Maximum gap in nats, a root mean square (`Canary.unexplained_gap`), of an engine in bfloat16 or float16. The weights
of the train step before cause 0.13 and more in a small policy that learns."""


def verify(model: PreTrainedModel, folder: Path) -> float | None:
    """Score the canary with `model` and return its gap (`Canary.gap`) to the log-probs that the trainer stored with the
    weights, in nats; None if the folder has no canary.

    Raises `CheckpointError` if the difference is too large, for instance because the model has other weights.
    """
    if not has_canary(folder):
        return None
    gap, unexplained = measure_canary(folder, model)
    refuse_gap(unexplained, folder, reduced=model.dtype != torch.float32)
    return gap


def refuse_gap(gap: float, folder: Path, *, reduced: bool) -> None:
    """Raise `CheckpointError` if a canary gap in nats (`Canary.unexplained_gap`) is larger than rounding explains.

    `reduced` is set if the engine computes in a shorter dtype than the trainer.
    """
    limit = MAX_CANARY_GAP_NATS_REDUCED if reduced else MAX_CANARY_GAP_NATS
    if not gap <= limit:  # NaN fails too
        raise CheckpointError(
            f"the engine's log-probs of the canary in {folder} differ from the trainer's by {gap:.3g} nats, more than "
            f"the allowed {limit}: the weights are damaged or of another version, or this engine computes differently",
            "restore the policy's folder from a copy, or use another engine",
        )


class ProvedWeights(NamedTuple):
    """Weights that passed the canary, and the reference for checking the engine's forward pass."""

    folder: Path
    tensors: dict[str, torch.Tensor]
    canary_gap: float | None
    """Canary gap in nats; None if the policy has no canary."""
    own: OwnPass
    num_bytes: int
    """Size in bytes of the files that were read."""


@torch.no_grad()
def prove_weights(model: PreTrainedModel, forward: Forward, folder: Path, publisher: Publisher) -> ProvedWeights:
    """Read the policy in `folder` by the publisher and verify it in a copy of `model`; `model` itself keeps serving.

    Raises `CheckpointError` if the weights are damaged, do not fit the model or fail their canary.
    """
    with refusing(folder), raising_checkpoint_errors("it cannot be computed"):
        tensors, num_bytes = publisher.read(folder)
        copy = with_weights(model, tensors)
        return ProvedWeights(folder, tensors, verify(copy, folder), own_pass(copy, forward), num_bytes)


@torch.no_grad()
def replace_weights(model: PreTrainedModel, forward: Forward, proved: ProvedWeights) -> None:
    """Swap the weights into `model` in place; decoding pauses only for this.

    If `forward`, which computes the logits for sampling, disagrees with the model's forward pass in `transformers`,
    restore the old weights and raise `CheckpointError`.
    """
    previous = {name: parameter.clone() for name, parameter in model.named_parameters()}
    crash_point("weights.before")
    _swap(model, forward, proved.tensors)
    crash_point("weights.after")
    if what := disagreement(model, forward, proved.own):
        _swap(model, forward, previous)
        with refusing(proved.folder):
            raise CheckpointError(what, "check the weights for NaN; if there is none, set engine.name = 'transformers'")


def _swap(model: PreTrainedModel, forward: Forward, tensors: dict[str, torch.Tensor]) -> None:
    swap_weights(model, tensors)
    forward.weights_changed()


@contextmanager
def refusing(folder: Path) -> Iterator[None]:
    """Add the policy's folder to the message of a `CheckpointError` that is raised inside the block."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"the policy in {folder} failed verification: {error.what}", error.advice) from error
