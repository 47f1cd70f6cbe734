"""Do TRACE's roots and forks, by predicted success, find more groups with different rewards, and does that help?"""

from typing import ClassVar

import numpy as np

from benchmarks.strategies.base import higher
from benchmarks.strategies.table import GRPO, Pages, TableStrategy


class Main(TableStrategy):
    """24 tasks of four presses; the third one decides, with a chance from Beta(0.3, 0.3). Eight rollouts per group."""

    trace = ("control.allocator=trace", "credit.name=tree_rl")
    common = (*GRPO, "train.learning_rate=3.2")
    arms: ClassVar = {
        "uniform": [],
        "trace": [*trace],
        "roots alone": [*trace, "control.allocator.mean_roots=8"],
        "forks alone": [*trace, "control.allocator.max_roots=4"],
    }
    claims = (
        higher("TRACE: more success per token", "trace", "uniform"),
        higher("TRACE: more groups with different rewards per token", "trace", "uniform", "contrasts"),
        higher("its roots alone: more success per token", "roots alone", "uniform"),
        higher("its forks alone: more success per token", "forks alone", "uniform"),
    )
    budget_tokens = 5_000

    def world(self, seed: int) -> Pages:
        chances_Q = np.random.default_rng(seed).beta(0.3, 0.3, 24).clip(1e-3, 0.99)
        return Pages(np.stack([np.ones(24), np.ones(24), chances_Q, np.ones(24)], axis=1))
