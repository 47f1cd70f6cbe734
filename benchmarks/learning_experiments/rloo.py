"""Is the gradient of RLOO unbiased, and that of GRPO not?

The policy gradient of a bandit with two arms is known: the derivative of the success rate p in the logit of the right
arm is p (1 - p). The mean gradient of many groups is compared with it. A leave-one-out baseline is refuted as unbiased
if the interval of its mean excludes 1.
"""

from typing import ClassVar

import numpy as np

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.table import TablePolicy
from benchmarks.learning_experiments.two_answers import PROMPT, RIGHT, TwoAnswers
from benchmarks.learning_experiments.world import WorldPolicy

CHANCE = 0.3
"""Success rate of the policy."""
GROUPS_PER_BATCH, ROLLOUTS_PER_GROUP = 64, 4


def relative_gradient(policy: TablePolicy, groups: list) -> float:
    """Return the gradient of the mean reward that the loss implies, divided by the exact one."""
    return -policy.gradient(groups)[PROMPT, RIGHT] / (CHANCE * (1 - CHANCE))


class Main(Experiment):
    """Mean and deviation of the gradient over 32 batches of 64 groups."""

    arms: ClassVar = {
        name: [f"credit.name={name}", "train.max_grad_norm=1e9"] for name in ("grpo", "dr_grpo", "reinforce", "rloo")
    }
    figures: ClassVar = {
        "ratio": Figure("mean gradient / exact gradient", 3),
        "deviation": Figure("standard deviation of a batch's gradient / exact gradient", 3),
    }
    claims = (
        Claim(text="RLOO: mean gradient ≥ 0.98 x exact", arm="rloo", figure="ratio", above=0.98),
        Claim(text="RLOO: mean gradient ≤ 1.02 x exact", arm="rloo", figure="ratio", below=1.02),
        Claim(text="group mean without leave-one-out: ≤ 0.8 x exact", arm="dr_grpo", figure="ratio", below=0.8),
        Claim(text="GRPO: ≥ 1.2 x exact", arm="grpo", figure="ratio", above=1.2),
        Claim(
            text="RLOO: less variance than REINFORCE", arm="rloo", against="reinforce", figure="deviation", below=0.0
        ),
    )
    budget_tokens = 32 * GROUPS_PER_BATCH * ROLLOUTS_PER_GROUP

    def run(self, settings: Settings, seed: int) -> Measured:
        policy = WorldPolicy(TwoAnswers(CHANCE), settings, seed)
        found = []
        while policy.tokens < self.budget_tokens:
            groups = policy.roll_out([0] * GROUPS_PER_BATCH, ROLLOUTS_PER_GROUP)
            found.append(relative_gradient(policy, groups))
        figures = {"ratio": float(np.mean(found)), "deviation": float(np.std(found, ddof=1))}
        return Measured(figures=figures, tokens=policy.tokens)
