"""Which learning rate is best for imitation of successes alone? The baseline of `agent_r`.

python -m benchmarks.strategies --method agent_r_tuning --seeds 0-4 --results /tmp/tuning
"""

from typing import ClassVar

from benchmarks.strategies.agent_r import Main as AgentR
from benchmarks.strategies.base import higher

CANDIDATES = {f"rate {rate}": ["sft.data=chat.jsonl", f"train.learning_rate={rate}"] for rate in (0.1, 0.3, 3.2)}


class Main(AgentR):
    """Imitation of successes with other learning rates."""

    arms: ClassVar = {"successes": AgentR.arms["successes"]} | CANDIDATES
    claims = tuple(higher(f"{name}: more success", name, "successes", "end") for name in CANDIDATES)
