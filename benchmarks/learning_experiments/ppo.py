"""Does PPO with a critic learn where a comparison within groups cannot: from single rollouts of a long, sparse task?

Ten pages must be passed within sixty turns; a wrong button leads back, half of the right presses have no effect, and
only the end is rewarded. Random presses hardly ever succeed. A group of one rollout has nothing to compare, so GRPO has
no gradient; and nearly all of its groups of eight have equal rewards at first. A critic compares each turn with the
value of its page, so the turns of a failure count too. REINFORCE needs no groups either, but has no baseline.
"""

from typing import ClassVar

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.chain import Chain
from benchmarks.learning_experiments.table import TablePolicy
from benchmarks.learning_experiments.turns import ROLLOUTS_PER_GROUP, learn

BUDGET_TOKENS = 48_000
ALONE = "alone"
"""Name of a setting of the experiment, not of the recipe: groups of one rollout."""
_PPO = [
    *("credit.name=gae", "credit.trace=0.9"),
    *("loss.terms=['ppo_clip', {name = 'value', clip = 1e9}]", "critic.learning_rate=0.05"),
]


def _higher(text: str, arm: str, against: str) -> Claim:
    return Claim(text=text, arm=arm, against=against, figure="mean", above=0)


class Main(Experiment):
    """Success of further rollouts at the end, and of all training rollouts."""

    arms: ClassVar = {
        "GRPO, groups of 8": ["credit.name=grpo"],
        "GRPO, groups of 1": [ALONE, "credit.name=grpo"],
        "REINFORCE, groups of 1": [ALONE, "credit.name=reinforce"],
        "PPO, groups of 1": [ALONE, *_PPO],
        "PPO, groups of 1, warm-up": [ALONE, *_PPO, "critic.warmup_steps=5"],
    }
    figures: ClassVar = {
        "end": Figure("success at the end, %", 1, 100),
        "mean": Figure("success of training rollouts, %", 1, 100),
    }
    claims = (
        _higher("from single rollouts: PPO above GRPO", "PPO, groups of 1", "GRPO, groups of 1"),
        _higher("from single rollouts: PPO above REINFORCE", "PPO, groups of 1", "REINFORCE, groups of 1"),
        _higher("PPO on single rollouts above GRPO on groups of 8", "PPO, groups of 1", "GRPO, groups of 8"),
        _higher("five steps in which the critic learns alone help", "PPO, groups of 1, warm-up", "PPO, groups of 1"),
    )

    def run(self, settings: Settings, seed: int) -> Measured:
        recipe = [setting for setting in settings if setting != ALONE]
        world = Chain(pages=10, turns=60, buttons=2, wrong="back", slip=0.5)
        policy = TablePolicy(world, ["train.learning_rate=0.05", *recipe], seed)
        return learn(policy, BUDGET_TOKENS, 1 if ALONE in settings else ROLLOUTS_PER_GROUP)
