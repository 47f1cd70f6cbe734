"""Does a value per step beat a value per token, if responses are long?

Every response is a press, which alone has an effect, and forty words on average. Advantage estimation over tokens
shrinks what a press learns from later turns by the trace per word; over steps, words do not count. Both have the same
value head, and the same loss per token.
"""

from typing import ClassVar

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.chain import Chain
from benchmarks.learning_experiments.table import TablePolicy
from benchmarks.learning_experiments.turns import learn

BUDGET_TOKENS = 300_000
_VALUE = ["loss.terms=['ppo_clip', {name = 'value', clip = 1e9}]", "critic.learning_rate=0.05"]


class Main(Experiment):
    """Success of further rollouts at the end, and of all training rollouts."""

    arms: ClassVar = {
        "gae": [*_VALUE, "credit.name=gae", "credit.trace=0.95"],
        "vl_dac": [*_VALUE, "credit.name=vl_dac", "credit.discount=1.0", "credit.trace=0.95"],
        "grpo": ["credit.name=grpo"],
    }
    figures: ClassVar = {
        "end": Figure("success at the end, %", 1, 100),
        "mean": Figure("success of training rollouts, %", 1, 100),
    }
    claims = tuple(
        Claim(text=f"value per step: above {other}", arm="vl_dac", against=other, figure="mean", above=0)
        for other in ("gae", "grpo")
    )

    def run(self, settings: Settings, seed: int) -> Measured:
        world = Chain(pages=3, turns=5, words=40.0)
        return learn(TablePolicy(world, ["train.learning_rate=0.05", *settings], seed), BUDGET_TOKENS)
