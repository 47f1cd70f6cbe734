"""Does a policy learn the same in bfloat16 as in float32?

Weights, gradients and optimizer state are float32 in both arms. In the arm `bfloat16` the engine holds its weights in
bfloat16, and the trainer's matrix products are in bfloat16.
"""

from typing import ClassVar

from benchmarks.learning_experiments.base import Claim
from benchmarks.strategies.base import Strategy

MARGIN = 0.03
"""Difference that counts as none: three percentage points of success."""


class Main(Strategy):
    """Plain GRPO in float32, against the same in bfloat16."""

    arms: ClassVar = {"float32": [], "bfloat16": ["engine.dtype=bfloat16", "train.compute_dtype=bfloat16"]}
    claims = (
        Claim(
            text="bfloat16: at most 3 points less success per token",
            arm="bfloat16",
            against="float32",
            figure="area",
            above=-MARGIN,
        ),
        Claim(
            text="bfloat16: at most 3 points more success per token",
            arm="bfloat16",
            against="float32",
            figure="area",
            below=MARGIN,
        ),
    )
