"""With which learning rate does the baseline of `history` learn to remember pictures?

python -m benchmarks.learning history_tuning --seeds 0-4 --results /tmp/tuning
"""

from typing import ClassVar

from benchmarks.learning_experiments.base import Claim
from benchmarks.learning_experiments.history import SLIDING
from benchmarks.learning_experiments.history import Main as History


class Main(History):
    """The sliding window, with four learning rates."""

    arms: ClassVar = {
        rate: [*History.arms[SLIDING], f"train.learning_rate={rate}"] for rate in ("0.001", "0.003", "0.01", "0.03")
    }
    claims = tuple(
        Claim(text=f"{rate}: more right answers than with 0.001", arm=rate, against="0.001", figure="end", above=0)
        for rate in ("0.003", "0.01", "0.03")
    )
