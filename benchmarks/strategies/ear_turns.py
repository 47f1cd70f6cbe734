"""Which changes of GRPO's advantage help on few tasks of three presses?"""

import numpy as np

from benchmarks.strategies.ear import Main as OneTurn
from benchmarks.strategies.table import Pages


class Main(OneTurn):
    """The arms and claims of `ear`, on eight tasks of three presses, right with a chance of 0.3 to 0.8 at first."""

    budget_tokens = 4_000

    def world(self, seed: int) -> Pages:
        return Pages(np.random.default_rng(seed).uniform(0.3, 0.8, (8, 3)))
