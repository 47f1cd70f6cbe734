"""New weights are proved before they serve: a copy scores the canary, then they are swapped in place and the engine's
pass is probed, or they go back."""

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
    refuse_gap(gap, folder, reduced=model.dtype != torch.float32)
    return gap


def refuse_gap(gap: float, folder: Path, *, reduced: bool) -> None:
    """Raise `CheckpointError` for a gap in nats that says that other weights are loaded than those in `folder`.

    `reduced`: the engine computes in a shorter type than the trainer.
    """
    limit = MAX_CANARY_GAP_NATS_REDUCED if reduced else MAX_CANARY_GAP_NATS
    if not gap <= limit:  # NaN fails too
        raise CheckpointError(
            f"{folder} does not score its canary as its trainer did: {gap:.3g} nats apart, at most {limit} allowed",
            "the weights are damaged or of another version, or this engine computes differently; it serves no token",
        )


class ProvedWeights(NamedTuple):
    """Weights that their trainer's canary speaks for, and what the engine's own pass must agree with."""

    folder: Path
    tensors: dict[str, torch.Tensor]
    canary_gap: float | None
    """In nats; None without a canary."""
    own: OwnPass


@torch.no_grad()
def prove_weights(model: PreTrainedModel, forward: Forward, folder: Path) -> ProvedWeights:
    """Read the policy in `folder` and prove it in a copy of `model`, which goes on serving meanwhile.

    Raises `CheckpointError` when the weights are damaged, do not fit or fail their canary.
    """
    with refusing(folder), raising_checkpoint_errors("it cannot be computed"):
        tensors = read_weights(folder)
        copy = with_weights(model, tensors)
        return ProvedWeights(folder, tensors, verify(copy, folder), own_pass(copy, forward))


@torch.no_grad()
def replace_weights(model: PreTrainedModel, forward: Forward, proved: ProvedWeights) -> None:
    """Put the weights into `model`, in place: all that has to happen between two steps.

    Raises `CheckpointError` and leaves the model as it was when they hold something that `forward`, which samples from
    the model, does not compute.
    """
    previous = {name: parameter.clone() for name, parameter in model.named_parameters()}
    crash_point("weights.before")
    _swap(model, forward, proved.tensors)
    crash_point("weights.after")
    if what := disagreement(forward, proved.own):
        _swap(model, forward, previous)
        with refusing(proved.folder):
            raise CheckpointError(what, "the weights hold NaN, or something that the engine's pass does not know")


def _swap(model: PreTrainedModel, forward: Forward, tensors: dict[str, torch.Tensor]) -> None:
    swap_weights(model, tensors)
    forward.weights_changed()


@contextmanager
def refusing(folder: Path) -> Iterator[None]:
    """Says in every `CheckpointError` which policy it refuses."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"the policy in {folder} is refused: {error.what}", error.advice) from error
