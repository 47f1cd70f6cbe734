"""Does PPO with a value per turn learn long tasks that trajectory GRPO does not, from sparse and from dense rewards?

Eight pages must be passed within 14 turns, and random presses rarely do that. GRPO gives every turn of a rollout the
same advantage. PPO learns the value of pages, so it also learns which press of a failure was good. The claims are those
of the Practitioner's Guide: PPO above GRPO, and dense rewards above sparse ones.
"""

from typing import ClassVar

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.chain import Chain
from benchmarks.learning_experiments.table import TablePolicy
from benchmarks.learning_experiments.turns import learn

BUDGET_TOKENS = 20_000
_PPO = [
    *("credit.name=vl_dac", "credit.discount=1.0", "credit.trace=0.95"),
    *("loss.terms=['ppo_clip', {name = 'value', clip = 1e9}]", "critic.learning_rate=0.05"),
]
DENSE = "dense"
"""Name of a setting of the world, not of the recipe."""


def _higher(text: str, arm: str, against: str) -> Claim:
    return Claim(text=text, arm=arm, against=against, figure="mean", above=0)


class Main(Experiment):
    """Success of further rollouts at the end, and of all training rollouts."""

    arms: ClassVar = {
        "GRPO, sparse": ["credit.name=grpo"],
        "PPO, sparse": _PPO,
        "GRPO, dense": [DENSE, "credit.name=grpo"],
        "PPO, dense": [DENSE, *_PPO],
    }
    figures: ClassVar = {
        "end": Figure("success at the end, %", 1, 100),
        "mean": Figure("success of training rollouts, %", 1, 100),
    }
    claims = (
        *(
            _higher(f"{rewards}: PPO above GRPO", f"PPO, {rewards}", f"GRPO, {rewards}")
            for rewards in ("sparse", "dense")
        ),
        *(_higher(f"{name}: dense above sparse", f"{name}, dense", f"{name}, sparse") for name in ("PPO", "GRPO")),
    )

    def run(self, settings: Settings, seed: int) -> Measured:
        world = Chain(pages=8, turns=14, dense=DENSE in settings)
        recipe = [setting for setting in settings if setting != DENSE]
        return learn(TablePolicy(world, ["train.learning_rate=0.05", *recipe], seed), BUDGET_TOKENS)
