"""GRPO's advantage with statistics over steps, as DART has it (arXiv 2509.23866)."""

import numpy as np

from quartet.train.advantage.base import Advantage
from quartet.train.advantage.grpo import Grpo


class GrpoSteps(Advantage):
    """(reward - mean over the group's steps) / (their standard deviation + epsilon), one value per trajectory.

    A step is one call, with the reward of its trajectory: a trajectory of twelve steps weighs six times as much in the
    baseline as one of two, so a group of short successes and long failures has a baseline near 0. The sum over steps is
    zero, not the sum over trajectories. Otherwise as `grpo`: unbiased standard deviation, `negative_weight`.
    """

    class Knobs(Grpo.Knobs):
        """Those of `grpo`."""

    source = "DART, arXiv 2509.23866"

    def __init__(self, knobs: Knobs) -> None:
        super().__init__(knobs)
        self._over_steps = Grpo(knobs)

    def estimate(self, rewards_N: np.ndarray, calls_N: np.ndarray) -> np.ndarray:
        steps_N = np.maximum(calls_N, 1)  # a trajectory without a call has nothing to train, but it did happen
        advantages_D = self._over_steps.estimate(np.repeat(rewards_N, steps_N), np.ones(steps_N.sum()))
        return advantages_D[np.cumsum(steps_N) - 1]
