"""Which learning rate and turn limit are best for plain GRPO where most presses fail? The baseline of `cleaner`.

python -m benchmarks.strategies --method cleaner_tuning --seeds 0-4 --results /tmp/tuning
"""

from typing import ClassVar

from benchmarks.strategies.base import higher
from benchmarks.strategies.cleaner import Main as Cleaner

CANDIDATES = {
    **{f"rate {rate}": [f"train.learning_rate={rate}"] for rate in (0.4, 1.6, 3.2, 6.4)},
    "12 turns": ["rollout.max_turns=12"],
}


class Main(Cleaner):
    """Plain GRPO with other settings, all with the loop `latest`."""

    arms: ClassVar = {"grpo": []} | CANDIDATES
    claims = tuple(higher(f"{name}: more success at the first try", name, "grpo") for name in CANDIDATES)
