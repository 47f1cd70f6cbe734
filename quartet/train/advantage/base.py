"""The interface of advantages: from the rewards of a group to one number per trajectory."""

from abc import abstractmethod

import numpy as np

from quartet.part import Part


class Advantage(Part):
    """What each trajectory of a group is worth."""

    @abstractmethod
    def estimate(self, rewards_N: np.ndarray, calls_N: np.ndarray) -> np.ndarray:
        """Return the advantages of the N countable members of one group, broadcast later to their turns and tokens.

        `calls_N` are the calls of each member: what it weighs where statistics are over steps.
        """
