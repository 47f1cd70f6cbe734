"""Does a value per step beat a value per token, if responses are long?

Every response is a press, which alone has an effect, and forty words on average. Advantage estimation over tokens
shrinks what a press learns from later turns by the trace per word; over steps, words do not count. Both have the same
value head, and the same loss per token.
"""

from typing import ClassVar

from benchmarks.learning_experiments.base import Experiment, Measured, Settings
from benchmarks.learning_experiments.chain import Chain
from benchmarks.learning_experiments.turns import FIGURES, PPO, higher, learn
from benchmarks.learning_experiments.world import WorldPolicy


class Main(Experiment):
    """Success of further rollouts at the end, and of all training rollouts."""

    arms: ClassVar = {
        "gae, trace 0.95": [*PPO, "credit.name=gae", "credit.trace=0.95"],
        "gae, trace 1": [*PPO, "credit.name=gae", "credit.trace=1.0"],
        "vl_dac": [*PPO, "credit.name=vl_dac", "credit.discount=1.0", "credit.trace=0.95"],
        "grpo": ["credit.name=grpo"],
    }
    common: ClassVar = ["train.learning_rate=0.05"]
    figures: ClassVar = FIGURES
    claims = tuple(
        higher(f"value per step: above {other}", "vl_dac", other)
        for other in ("gae, trace 0.95", "gae, trace 1", "grpo")
    )
    budget_tokens = 300_000

    def run(self, settings: Settings, seed: int) -> Measured:
        world = Chain(pages=3, turns=5, words=40.0)
        return learn(WorldPolicy(world, settings, seed), self.budget_tokens)
