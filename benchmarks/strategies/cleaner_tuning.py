"""Which settings are best for plain GRPO where many presses fail? The baseline of `cleaner`.

python -m benchmarks.strategies --method cleaner_tuning --seeds 0-4 --results /tmp/tuning
"""

from typing import ClassVar

from benchmarks.strategies.base import higher
from benchmarks.strategies.cleaner import Main as Cleaner

CANDIDATES = {
    "rate 1e-3": ["train.learning_rate=1e-3"],
    "rate 4e-3": ["train.learning_rate=4e-3"],
    "entropy 0.02": ["loss.terms.entropy.weight=0.02"],
}


class Main(Cleaner):
    """Plain GRPO with the settings that were tuned on `locks`, and with others."""

    arms: ClassVar = {"grpo": []} | CANDIDATES
    claims = tuple(higher(f"{name}: more success per token", name, "grpo") for name in CANDIDATES)
