"""GRPO's group-relative advantage (Shao and others 2024, DeepSeekMath, section 4.1.2, outcome supervision)."""

from typing import Annotated

import numpy as np
from pydantic import Field

from quartet.config.section import PositiveFloat, Section
from quartet.train.baseline import normalised
from quartet.train.credit.base import Credit
from quartet.train.credit_batch import CreditBatch


class Grpo(Credit):
    """Advantage: (reward - group mean) / (group standard deviation + epsilon), the same at every token of a rollout.

    Advantages below zero are then multiplied by `negative_weight`; 1 is GRPO as published. The standard deviation is
    unbiased (ddof = 1). Equal rewards, or a group of one, give exactly 0. DAPO's advantage is the same.
    """

    class Settings(Section):
        epsilon: PositiveFloat = 1e-6
        """Constant added to the group's standard deviation."""
        negative_weight: Annotated[float, Field(ge=0)] = 1.0
        """Factor on advantages below zero. 1 is GRPO; 0 learns only from rollouts above the group's mean."""

    settings: Settings
    source = "DeepSeekMath, arXiv 2402.03300, section 4.1.2"

    def assign(self, batch: CreditBatch) -> None:
        batch.assign_members(batch.over_groups(self.normalised, batch.rewards_N))

    def normalised(self, rewards_N: np.ndarray) -> np.ndarray:
        """Return the advantages for the rewards of one group."""
        advantages_N = normalised(rewards_N, self.settings.epsilon)
        return np.where(advantages_N < 0, self.settings.negative_weight * advantages_N, advantages_N)
