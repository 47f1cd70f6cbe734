"""Which learning rate is best for GRPO without imitation before it? The baseline of `webagent_r1`.

python -m benchmarks.strategies --method webagent_r1_tuning --seeds 0-2 --results /tmp/tuning
"""

from typing import ClassVar

from benchmarks.strategies.base import higher
from benchmarks.strategies.webagent_r1 import Main as WebAgentR1

CANDIDATES = {f"rate {rate}": [f"train.learning_rate={rate}"] for rate in (0.4, 0.8, 3.2)}


class Main(WebAgentR1):
    """GRPO alone, with other learning rates."""

    arms: ClassVar = {"grpo": WebAgentR1.arms["grpo"]} | CANDIDATES
    claims = tuple(higher(f"{name}: more success at the first try", name, "grpo") for name in CANDIDATES)
