"""Cost of a train step, by the number of its operations."""

import math

from msgspec import Struct

from quartet.forecast.gpus import GpuKind
from quartet.forecast.model_size import ModelSize

BYTES_PER_PARAMETER = 16
"""Weights, gradients and AdamW's two moments in float32 (4 bytes each), sharded over the GPUs (FSDP2)."""
BYTES_PER_FROZEN_PARAMETER = 4
"""Weights of a reference or a teacher in float32, sharded too."""
STATE_MEMORY = 0.7
"""Share of a GPU's memory for this state; the rest is for activations."""


class Trainer(Struct, frozen=True, kw_only=True):
    """GPUs of one kind that train together."""

    kind: GpuKind
    trainer_efficiency: float
    """Share of the peak that the passes reach, recomputation included."""
    passes: float
    """Operations per parameter and token, in units of one forward pass (2 per parameter and token)."""
    frozen_policies: int = 0
    """Number of further policies in memory that are not trained: reference and teacher."""

    def step_seconds(self, gpus: int, model: ModelSize, tokens: float) -> float:
        """Return the duration of a train step on `tokens` tokens."""
        operations = 2 * self.passes * model.parameters * tokens
        return operations / (gpus * self.kind.flops_per_second * self.trainer_efficiency)

    def fewest_gpus(self, model: ModelSize) -> int:
        """Return the smallest number of GPUs whose memory holds the state of training."""
        num_bytes = BYTES_PER_PARAMETER + BYTES_PER_FROZEN_PARAMETER * self.frozen_policies
        return math.ceil(num_bytes * model.parameters / (STATE_MEMORY * self.kind.memory_bytes))


def passes_of(*, optimizer_epochs: int, activation_checkpointing: bool, further: float) -> float:
    """Return the forward passes per trained token.

    Each epoch has a forward and a backward pass, which costs two, and one more with activation checkpointing. `further`
    passes come before: for old log-probs, a reference and the credit.
    """
    per_epoch = 4 if activation_checkpointing else 3
    return optimizer_epochs * per_epoch + further
