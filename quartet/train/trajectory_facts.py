"""Facts of a stored trajectory that credit needs."""

import numpy as np

from quartet.types import Trajectory


def call_rewards(trajectory: Trajectory) -> np.ndarray:
    """Return `[num_calls]`, float64: the rewards of the turns that resulted from each call.

    Reward outside turns is added to the last call, so the sum is the rollout's reward.
    """
    rewards_C = np.zeros(len(trajectory.calls))
    for turn in trajectory.turns:
        rewards_C[turn.call_index] += turn.reward
    if len(rewards_C):
        rewards_C[-1] += trajectory.reward - rewards_C.sum()
    return rewards_C
