"""Do more rollouts per task, with a learning rate by the root of the batch, give more success at equal tokens?"""

from typing import ClassVar

import numpy as np

from benchmarks.strategies.base import higher
from benchmarks.strategies.table import GRPO, Pages, TableStrategy


def broad(rollouts: int, groups: int, learning_rate: float = 3.2) -> list[str]:
    """Return the settings of batches of `groups` groups. The learning rate belongs to 16 groups of 8 rollouts."""
    scaled = learning_rate * (rollouts * groups / 128) ** 0.5
    return [
        f"control.rollouts_per_group={rollouts}",
        f"train.groups_per_batch={groups}",
        f"train.learning_rate={scaled:.4g}",
    ]


class Main(TableStrategy):
    """16 tasks of one press among 64 buttons, one of them right with a chance of 0.02 to 0.1 at first.

    BroRL continues a training that no longer improves. This experiment starts a training, so it asks more than the
    paper claims.
    """

    arms: ClassVar = {
        "8 rollouts": broad(8, 16),
        "32 rollouts": broad(32, 8),
        "128 rollouts": broad(128, 4),
        "512 rollouts": broad(512, 2),
    }
    common = (*GRPO, "credit.name=reinforce_plus_plus_baseline")
    claims = (
        higher("BroRL, 128 rollouts: more success per token than 8", "128 rollouts", "8 rollouts"),
        higher("512 rollouts: more success per token than 8", "512 rollouts", "8 rollouts"),
        higher("32 rollouts: more success per token than 8", "32 rollouts", "8 rollouts"),
        higher("BroRL, 128 rollouts: a larger share of groups trained", "128 rollouts", "8 rollouts", "mixed"),
    )
    budget_tokens = 6_000

    def world(self, seed: int) -> Pages:
        return Pages(np.random.default_rng(seed).uniform(0.02, 0.1, (16, 1)), buttons=64)
