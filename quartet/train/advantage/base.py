"""The advantage protocol: from the rewards of a group to one number per trajectory."""

from typing import Protocol

import numpy as np


class Advantage(Protocol):
    def estimate(self, rewards_N: np.ndarray, calls_N: np.ndarray) -> np.ndarray:
        """Advantages of the N countable members of one group, broadcast later to their turns and tokens.

        `calls_N` are the calls of each member: what it weighs where statistics are over steps.
        """
        ...
