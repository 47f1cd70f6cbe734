"""What does each of DART's curation parts contribute, alone and together with the others?

Every set of the parts is an arm, so that Shapley values can be computed. The suite is `locks-late`, on which plain GRPO
learns within the budget: a part that only helps with tasks that plain GRPO never solves cannot show it here.
"""

from typing import ClassVar

from benchmarks.strategies.base import Strategy, higher
from benchmarks.strategies.shapley import Coalition, coalitions

PARTS = {
    "rollouts": ["control.allocator=dynamic"],
    "pool": ["replay.name=success_pool", "replay.rule=recompute", "replay.mode=substitute", "replay.max_replays=32"],
    "entropy": ["train.min_turn_entropy_percentile=20"],
}
"""Part -> its settings: dynamic numbers of rollouts, the pool of the run's own successes, training on high-entropy
turns."""


def arm(some: Coalition) -> str:
    """Return the name of the arm with these parts."""
    return " + ".join(part for part in PARTS if part in some) or "none"


class Main(Strategy):
    """Plain GRPO, with every set of the parts."""

    suite = "locks-late"
    budget_tokens = 8_000
    arms: ClassVar = {
        arm(some): [setting for part in PARTS if part in some for setting in PARTS[part]]
        for some in coalitions([*PARTS])
    }
    common = ("train.learning_rate=1e-3", "loss.terms.entropy.weight=0.01")
    claims = (
        higher("all parts: more success per token than none", arm(frozenset(PARTS)), "none"),
        *(higher(f"{part} alone: more success per token than none", part, "none") for part in PARTS),
    )
