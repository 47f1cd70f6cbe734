"""Do XRPO's rounds by uncertainty, seeded prompts and novelty bonus give more success at equal tokens?"""

from typing import ClassVar

import numpy as np

from benchmarks.learning_experiments.base import Figure
from benchmarks.learning_experiments.table import TablePolicy
from benchmarks.strategies.base import higher
from benchmarks.strategies.contrast import Course
from benchmarks.strategies.table import GRPO, Pages, TableStrategy


class Main(TableStrategy):
    """48 tasks of one press, whose success rates are drawn from Beta(0.35, 0.35), eight rollouts per group in the mean.

    Two presses are right, the second with a tenth of their probability. A seeded prompt is right with probability 0.3,
    as an assumption about the policy's ability to learn from examples: the experiment asks what allocator and training
    make of it.
    """

    xrpo, seeds = ("control.allocator=xrpo",), ("rollout.guidance=examples",)
    common = (*GRPO, "train.learning_rate=3.2")
    arms: ClassVar = {
        "uniform": [],
        "xrpo": [*xrpo, *seeds, "credit.name=xrpo"],
        "rounds": [*xrpo],
        "rounds and seeds": [*xrpo, *seeds],
    }
    figures: ClassVar = dict(TableStrategy.figures) | {
        "second": Figure("share of the second right press at the end, %", 1, 100)
    }
    claims = (
        higher("XRPO: more success per token", "xrpo", "uniform"),
        higher("its rounds alone: more success per token", "rounds", "uniform"),
        higher("its seeds: more success per token than rounds alone", "rounds and seeds", "rounds"),
        higher("its seeds: more success at hopeless tasks", "rounds and seeds", "rounds", "hopeless"),
        higher("its novelty bonus: a larger share of the second right press", "xrpo", "rounds and seeds", "second"),
    )
    budget_tokens = 2_400

    def world(self, seed: int) -> Pages:
        chances_Q = np.random.default_rng(seed).beta(0.35, 0.35, 48).clip(1e-3, 0.99)
        return Pages(chances_Q[:, None], guided=0.3, second=0.1)

    def measured(self, world: Pages, policy: TablePolicy, course: Course) -> dict[str, float]:
        first, second = (
            np.mean([policy.chance(page, button) for page in range(len(world.chances_QT))]) for button in world.right
        )
        return super().measured(world, policy, course) | {"second": float(second / (first + second))}
