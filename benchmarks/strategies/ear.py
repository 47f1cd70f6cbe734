"""Which changes of GRPO's advantage help on many tasks of one press (EAR, novelty, ECHO, Lite PPO, Dr. GRPO)?"""

from typing import ClassVar

import numpy as np

from benchmarks.strategies.base import higher
from benchmarks.strategies.table import GRPO, Pages, TableStrategy


class Main(TableStrategy):
    """24 tasks of one press, with chances from Beta(0.35, 0.35). The same arms as in `ear_turns`."""

    arms: ClassVar = {
        "grpo": [],
        "ear": ["credit.name=ear"],
        "xrpo": ["credit.name=xrpo"],
        "echo": ["credit.name=echo"],
        "lite_ppo": ["credit.name=lite_ppo"],
        "dr_grpo": ["credit.name=dr_grpo"],
    }
    common = (*GRPO, "train.learning_rate=3.2")
    claims = (
        higher("EAR: more success per token than GRPO", "ear", "grpo"),
        higher("novelty (XRPO): more success per token than GRPO", "xrpo", "grpo"),
        higher("ECHO's hybrid advantage: more success per token than GRPO", "echo", "grpo"),
        higher("Lite PPO: more success per token than GRPO", "lite_ppo", "grpo"),
        higher("Dr. GRPO: more success per token than GRPO", "dr_grpo", "grpo"),
    )
    budget_tokens = 2_000

    def world(self, seed: int) -> Pages:
        return Pages(np.random.default_rng(seed).beta(0.35, 0.35, (24, 1)).clip(1e-3, 0.99))
