"""Does PPO with a value per turn learn long tasks that trajectory GRPO does not, from sparse and from dense rewards?

Eight pages must be passed within 14 turns, and random presses rarely do that. GRPO gives every turn of a rollout the
same advantage. PPO learns the value of pages, so it also learns which press of a failure was good. The claims are those
of the Practitioner's Guide: PPO above RLOO and GRPO, and dense rewards above sparse ones.
"""

from typing import ClassVar

from benchmarks.learning_experiments.base import Experiment, Measured, Settings
from benchmarks.learning_experiments.chain import Chain
from benchmarks.learning_experiments.turns import FIGURES, PPO, higher, learn
from benchmarks.learning_experiments.world import WorldPolicy

_VL_DAC = ["credit.name=vl_dac", "credit.discount=1.0", "credit.trace=0.95", *PPO]
DENSE = "dense"
"""Name of a setting of the world, not of the recipe."""


class Main(Experiment):
    """Success of further rollouts at the end, and of all training rollouts."""

    arms: ClassVar = {
        "GRPO, sparse": ["credit.name=grpo"],
        "RLOO, sparse": ["credit.name=rloo"],
        "PPO, sparse": _VL_DAC,
        "GRPO, dense": [DENSE, "credit.name=grpo"],
        "RLOO, dense": [DENSE, "credit.name=rloo"],
        "PPO, dense": [DENSE, *_VL_DAC],
    }
    common: ClassVar = ["train.learning_rate=0.05"]
    figures: ClassVar = FIGURES
    claims = (
        *(
            higher(f"{rewards}: PPO above {other}", f"PPO, {rewards}", f"{other}, {rewards}")
            for rewards in ("sparse", "dense")
            for other in ("GRPO", "RLOO")
        ),
        *(higher(f"{name}: dense above sparse", f"{name}, dense", f"{name}, sparse") for name in ("PPO", "GRPO")),
    )
    budget_tokens = 20_000

    def run(self, settings: Settings, seed: int) -> Measured:
        world = Chain(pages=8, turns=14, dense=DENSE in settings)
        recipe = [setting for setting in settings if setting != DENSE]
        return learn(WorldPolicy(world, recipe, seed), self.budget_tokens)
