"""Verified loading of weights: a copy scores the canary, then the weights are swapped in place.

The engine's own pass is probed after the swap; if the probe fails, the old weights are restored.
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
from quartet.policy.canary import check_canary, has_canary
from quartet.policy.files import raising_checkpoint_errors
from quartet.policy.load import read_weights, swap_weights, with_weights

MAX_CANARY_GAP_NATS = 1e-3
"""Limit if engine and trainer score the same tokens with the same float32 weights."""
MAX_CANARY_GAP_NATS_REDUCED = 0.25
"""Limit for an engine in bfloat16 or float16 and a float32 trainer: catches wrong weights, not rounding."""


def verify(model: PreTrainedModel, folder: Path) -> float | None:
    """Return the largest difference in nats to the log-probs that the trainer stored with the weights; None without
    any.

    Raises `CheckpointError` if the difference is too large, for instance because other weights are loaded.
    """
    if not has_canary(folder):
        return None
    gap = check_canary(folder, model)
    refuse_gap(gap, folder, reduced=model.dtype != torch.float32)
    return gap


def refuse_gap(gap: float, folder: Path, *, reduced: bool) -> None:
    """Raise `CheckpointError` for a gap in nats which shows that the loaded weights are not those in `folder`.

    `reduced`: the engine computes in a shorter type than the trainer.
    """
    limit = MAX_CANARY_GAP_NATS_REDUCED if reduced else MAX_CANARY_GAP_NATS
    if not gap <= limit:  # NaN fails too
        raise CheckpointError(
            f"{folder} does not score its canary as its trainer did: {gap:.3g} nats apart, at most {limit} allowed",
            "the weights are damaged or of another version, or this engine computes differently; it serves no token",
        )


class ProvedWeights(NamedTuple):
    """Weights that passed their trainer's canary, and the reference for the engine's own pass."""

    folder: Path
    tensors: dict[str, torch.Tensor]
    canary_gap: float | None
    """Gap in nats; None without a canary."""
    own: OwnPass


@torch.no_grad()
def prove_weights(model: PreTrainedModel, forward: Forward, folder: Path) -> ProvedWeights:
    """Read the policy in `folder` and prove it in a copy of `model`, which keeps serving meanwhile.

    Raises `CheckpointError` if the weights are damaged, do not fit or fail their canary.
    """
    with refusing(folder), raising_checkpoint_errors("it cannot be computed"):
        tensors = read_weights(folder)
        copy = with_weights(model, tensors)
        return ProvedWeights(folder, tensors, verify(copy, folder), own_pass(copy, forward))


@torch.no_grad()
def replace_weights(model: PreTrainedModel, forward: Forward, proved: ProvedWeights) -> None:
    """Swap the weights into `model` in place: the only work between two steps.

    Raises `CheckpointError` and restores the old weights if `forward`, which samples from the model, disagrees with the
    model's own pass.
    """
    previous = {name: parameter.clone() for name, parameter in model.named_parameters()}
    crash_point("weights.before")
    _swap(model, forward, proved.tensors)
    crash_point("weights.after")
    if what := disagreement(forward, proved.own):
        _swap(model, forward, previous)
        with refusing(proved.folder):
            raise CheckpointError(what, "the weights hold NaN, or something that the engine's pass does not support")


def _swap(model: PreTrainedModel, forward: Forward, tensors: dict[str, torch.Tensor]) -> None:
    swap_weights(model, tensors)
    forward.weights_changed()


@contextmanager
def refusing(folder: Path) -> Iterator[None]:
    """Add the refused policy's folder to every `CheckpointError`."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"the policy in {folder} is refused: {error.what}", error.advice) from error
