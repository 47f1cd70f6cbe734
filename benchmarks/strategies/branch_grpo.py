"""Do trees (forks of BranchGRPO, ETTRL, ECHO) need fewer tokens than independent rollouts, if a late press decides?"""

from typing import ClassVar

import numpy as np

from benchmarks.strategies.base import higher
from benchmarks.strategies.table import GRPO, Pages, TableStrategy


class Main(TableStrategy):
    """Eight tasks of four presses, one of which decides, with a chance from 0.05 to 0.3; here the last one.

    Eight independent rollouts against groups of about eight leaves: two roots that split before their third and fourth
    press, two roots with forks at the most uncertain press, or four roots with forks where ECHO's conditions hold. The
    last two have TreeRL's credit, so they are compared with independent rollouts that have it too.
    """

    _trees = (
        *("rollout.brancher=branch_grpo", "rollout.brancher.calls=[2,3]"),
        *("rollout.brancher.max_forks_per_group=6", "control.rollouts_per_group=2"),
    )
    arms: ClassVar = {
        "independent": [],
        "independent, tree_rl": ["credit.name=tree_rl"],
        "two trees": [*_trees, "credit.name=branch_grpo"],
        "two trees, tree_rl": [*_trees, "credit.name=tree_rl"],
        "ettrl": [
            *("control.allocator=ettrl", "control.allocator.calls=1", "control.allocator.children=3"),
            *("control.rollouts_per_group=2", "credit.name=tree_rl"),
        ],
        "echo": [
            *("rollout.brancher=echo", "rollout.brancher.max_forks_per_group=4"),
            *("control.rollouts_per_group=4", "credit.name=tree_rl"),
        ],
    }
    common = (*GRPO, "train.learning_rate=3.2")
    claims = (
        higher("BranchGRPO, two trees: more success per token than independent rollouts", "two trees", "independent"),
        higher("TreeRL's credit: more success per token than depth-wise", "two trees, tree_rl", "two trees"),
        higher("ETTRL's forks: more success per token than without, TreeRL's credit", "ettrl", "independent, tree_rl"),
        higher("ECHO's forks: more success per token than without, TreeRL's credit", "echo", "independent, tree_rl"),
    )
    budget_tokens = 4_000
    decisive: ClassVar[int] = 3
    """Index of the press that decides."""

    def world(self, seed: int) -> Pages:
        chances_QT = np.ones((8, 4))
        chances_QT[:, self.decisive] = np.random.default_rng(seed).uniform(0.05, 0.3, 8)
        return Pages(chances_QT)
