"""New weights are proven before they serve: swap in place, score the canary, probe the pass, or go back."""

from pathlib import Path

import torch
from transformers import PreTrainedModel

from quartet.errors import CheckpointError
from quartet.policy.canary import check_canary, has_canary
from quartet.policy.load import swap_weights
from quartet.rollout.engine.agreement import disagreement
from quartet.rollout.engine.forward import Forward

MAX_CANARY_GAP_NATS = 1e-3
"""Engine and trainer score the same tokens with the same float32 weights."""
MAX_CANARY_GAP_NATS_REDUCED = 0.25
"""For an engine in bfloat16 or float16 beside a float32 trainer: catches wrong weights, not rounding."""


def verify(model: PreTrainedModel, folder: Path) -> float | None:
    """Largest difference in nats to the log-probs the trainer wrote beside the weights; None when it wrote none.

    Raises `CheckpointError` when the difference is too large, which also means that the wrong weights are loaded.
    """
    if not has_canary(folder):
        return None
    gap = check_canary(folder, model)
    limit = MAX_CANARY_GAP_NATS if model.dtype == torch.float32 else MAX_CANARY_GAP_NATS_REDUCED
    if not gap <= limit:  # NaN fails too
        raise CheckpointError(
            f"{folder} does not score its canary as its trainer did: {gap:.3g} nats apart, at most {limit} allowed",
            "the weights are damaged or of another version, or this engine computes differently; it serves no token",
        )
    return gap


@torch.no_grad()
def replace_weights(
    model: PreTrainedModel, forward: Forward, weights: dict[str, torch.Tensor], folder: Path
) -> float | None:
    """Put `weights`, read from `folder`, into `model` and verify them; returns the canary gap in nats.

    Raises `CheckpointError` and leaves the model as it was when they do not fit, fail the canary, or hold something
    that `forward`, which samples from the model, does not compute.
    """
    previous = {name: parameter.clone() for name, parameter in model.named_parameters()}
    try:
        swap_weights(model, weights)
        gap = verify(model, folder)
        if what := disagreement(forward, model):
            raise CheckpointError(what, "the weights hold NaN, or something that the engine's pass does not know")
        return gap
    except CheckpointError as error:
        swap_weights(model, previous)
        raise CheckpointError(f"the policy in {folder} is refused: {error.what}", error.advice) from error
