"""Does UI-S1's semi-online learning from recordings open more locks than offline learning from the same recordings?

Training never touches a lock: the environment is the recorded presses of an expert, for four rows of each lock.
"""

from pathlib import Path
from typing import ClassVar

from benchmarks.locks.imitate import imitate
from benchmarks.locks.run import Result
from benchmarks.strategies.base import Strategy, higher
from quartet.config import Recipe

RECORDED = "env.name=benchmarks.locks.offline:OfflineLocks"
STEPS_ONLY = ("credit.name=ui_s1", "credit.discount=0", "credit.episode_weight=0")
"""Each turn is compared with the same turn of the other rollouts, by its own reward alone."""
ALWAYS = "env.max_patches=99"

IMITATION = ("sft.data=recordings", "sft.steps=63", "sft.learning_rate=2e-2")
"""`sft.data` selects supervised imitation in place of rollouts. 63 batches of 32 presses have the tokens of the budget.
The learning rate was tuned on seeds 0 to 4."""


class Main(Strategy):
    """Offline reinforcement learning, in which all states and the history are the expert's, and supervised imitation of
    as many of the expert's presses, against semi-online learning with one patch or none.

    The page decides the right press, so the policy's own history matters little here: the paper's main advantage should
    be small.
    """

    budget_tokens = 4_000
    common = ("train.learning_rate=1e-3",)
    """Tuned for offline and for semi-online learning on seeds 0 to 4."""
    arms: ClassVar = {
        "offline": [RECORDED, ALWAYS, *STEPS_ONLY],
        "semi-online": [RECORDED, "env.max_patches=1", "credit.name=ui_s1"],
        "no patches": [RECORDED, "env.max_patches=0", "credit.name=ui_s1"],
        "imitation": [RECORDED, "env.max_patches=1", *IMITATION],
    }
    claims = (
        higher("UI-S1: more success per token than offline learning", "semi-online", "offline"),
        higher("UI-S1: more success at the end", "semi-online", "offline", "end"),
        higher("one patch: more success per token than none", "semi-online", "no patches"),
        higher("UI-S1: more success per token than imitation", "semi-online", "imitation"),
        higher("UI-S1: more success at the end than imitation", "semi-online", "imitation", "end"),
    )

    def result(self, recipe: Recipe, run_dir: Path) -> Result:
        if recipe.sft.data:
            return imitate(recipe, run_dir, self.budget_tokens)
        return super().result(recipe, run_dir)
