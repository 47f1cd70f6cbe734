"""Does ReMix's replay of rollouts of the last two policies give more success per fresh token?

All arms train on two tasks of each lock, so that tasks recur while stored rollouts are young enough.
"""

from typing import ClassVar

from benchmarks.strategies.base import Strategy, higher

RECENT = ("replay.name=recent", "replay.share=0.4", "replay.policies=2", "replay.entries_per_task=32")
MIXED = 'loss.terms=[{name = "ppo_mixed"}, {name = "entropy", weight = 0.05}]'
CONVEX = (
    'loss.terms=[{name = "ppo_mixed"}, {name = "entropy", weight = 0.05},'
    ' {name = "kl", weight = 0.001, weight_points = [[3, 1.0], [6, 0.5], [7, 1.0]]},'
    ' {name = "kl_old", weight = 0.001, weight_points = [[3, 0.0], [6, 0.5], [7, 0.0]]}]'
)
REBORN = ("replay.last_train_step=6", "reference.train_steps_per_move=6", "reference.max_moves=1")
"""Reincarnation after 6 train steps, about a third of a run."""


class Main(Strategy):
    """Fresh rollouts only, and with two fifths of each group stored; the latter with a clip whose centre moves, and
    with PPO's clip around 1 and a truncated importance weight. The arm `reborn` has the convex mix of two references
    and the reincarnation, too."""

    budget_tokens = 8_000
    common = ("control.train_seeds_per_family=2",)
    arms: ClassVar = {
        "fresh": [],
        "remix": [*RECENT, MIXED],
        "stored, usual clip": [*RECENT, "loss.terms.ppo_clip.importance=truncate"],
        "fresh, moving clip": [MIXED],
        "reborn": [*RECENT, *REBORN, CONVEX],
    }
    claims = (
        higher("ReMix: more success per fresh token", "remix", "fresh"),
        higher("ReMix: more success at the end", "remix", "fresh", "end"),
        higher("references and reincarnation: more success at the end than replay alone", "reborn", "remix", "end"),
        higher("a clip with a moving centre: more success than the usual one", "remix", "stored, usual clip"),
    )
