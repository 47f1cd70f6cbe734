"""Does PPO with a critic learn where a comparison within groups cannot: from single rollouts of a long, sparse task?

Ten pages must be passed within sixty turns; a wrong button leads back, half of the right presses have no effect, and
only the end is rewarded. Random presses hardly ever succeed. A group of one rollout has nothing to compare, so GRPO has
no gradient; and nearly all of its groups of eight have equal rewards at first. A critic compares each turn with the
value of its page, so the turns of a failure count too. REINFORCE needs no groups either, but has no baseline;
REINFORCE++ subtracts the mean of the batch and divides by its standard deviation, as PPO does.
"""

from typing import ClassVar

from benchmarks.learning_experiments.base import Experiment, Measured, Settings
from benchmarks.learning_experiments.chain import Chain
from benchmarks.learning_experiments.turns import FIGURES, PPO, ROLLOUTS_PER_GROUP, higher, learn
from benchmarks.learning_experiments.world import WorldPolicy

ALONE = "alone"
"""Name of a setting of the experiment, not of the recipe: groups of one rollout."""
_GAE = [ALONE, "credit.name=gae", "credit.trace=0.9", *PPO]


class Main(Experiment):
    """Success of further rollouts at the end, and of all training rollouts."""

    arms: ClassVar = {
        "GRPO, groups of 8": ["credit.name=grpo"],
        "GRPO, groups of 1": [ALONE, "credit.name=grpo"],
        "REINFORCE, groups of 1": [ALONE, "credit.name=reinforce"],
        "REINFORCE++, groups of 1": [ALONE, "credit.name=reinforce_plus_plus", "credit.kl_coefficient=1e-9"],
        "PPO, groups of 1": _GAE,
        "PPO, groups of 1, warm-up": [*_GAE, "critic.warmup_steps=5"],
    }
    common: ClassVar = ["train.learning_rate=0.05"]
    figures: ClassVar = FIGURES
    claims = (
        *(
            higher(f"from single rollouts: PPO above {other}", "PPO, groups of 1", f"{other}, groups of 1")
            for other in ("REINFORCE", "REINFORCE++")
        ),
        higher("PPO on single rollouts above GRPO on groups of 8", "PPO, groups of 1", "GRPO, groups of 8"),
        higher("five steps in which the critic learns alone help", "PPO, groups of 1, warm-up", "PPO, groups of 1"),
    )
    budget_tokens = 48_000

    def run(self, settings: Settings, seed: int) -> Measured:
        recipe = [setting for setting in settings if setting != ALONE]
        world = Chain(pages=10, turns=60, buttons=2, wrong="back", slip=0.5)
        policy = WorldPolicy(world, recipe, seed)
        return learn(policy, self.budget_tokens, 1 if ALONE in settings else ROLLOUTS_PER_GROUP)
