"""Does imitation of a family's earlier successes help, where all rollouts of a task fail?"""

from typing import ClassVar

from benchmarks.strategies.base import Strategy, higher


def imitation(weight: float) -> list[str]:
    """Return the settings of self-imitation beside the loss terms of plain GRPO."""
    return [
        "replay.name=self_imitation",
        'loss.terms=["ppo_clip", "entropy", "nll"]',
        "loss.terms.ppo_clip.importance=none",
        "loss.terms.entropy.weight=0.05",
        f"loss.terms.nll.weight={weight}",
    ]


class Main(Strategy):
    """Plain GRPO, against the same with a stored success of the family in every group of failures."""

    arms: ClassVar = {
        "grpo": [],
        "weight 0.1": imitation(0.1),
        "weight 0.5": imitation(0.5),
    }
    claims = (
        higher("imitation with weight 0.5: more success per token", "weight 0.5", "grpo"),
        higher("imitation with weight 0.1: more success per token", "weight 0.1", "grpo"),
        higher("imitation with weight 0.5: a larger share of groups is trained", "weight 0.5", "grpo", "trained"),
    )
