"""Does each of the three parts of GRPO-TCR help: token mean, clip-higher, overlong reward shaping?

A response thinks, then answers; the right answer is rare, and a response without an answer within 16 words fails. The
preset is compared with itself without each part, and with none of them.
"""

from typing import ClassVar

import numpy as np

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.episode import Episode
from benchmarks.learning_experiments.table import logits_of
from benchmarks.learning_experiments.world import World, WorldPolicy
from quartet.types import Trajectory

PROMPT, THINK, RIGHT, WRONG = range(4)
MAX_WORDS = 16
TASKS, ROLLOUTS_PER_GROUP = 1, 32
_T, _NO_T = "loss.aggregation=token_mean", "loss.aggregation=sequence_mean"
_C, _NO_C = "loss.terms.ppo_clip.clip_high=0.28", "loss.terms.ppo_clip.clip_high=0.2"
_R = [f"train.overlong_max_tokens={MAX_WORDS}", "train.overlong_cache_tokens=8"]
FULL, NONE = "T + C + R", "none"


class LengthLimit(World):
    """Thinking of any length, then one of two answers, of which the right one is rare."""

    def logits(self) -> np.ndarray:
        row = {THINK: 0.92, RIGHT: 0.004, WRONG: 0.076}
        return logits_of({PROMPT: row, THINK: row}, 4)

    def play(self, episode: Episode, task: int) -> Trajectory:
        episode.show(PROMPT)
        last = episode.respond(MAX_WORDS, {RIGHT, WRONG})[-1]
        episode.reward(float(last == RIGHT))
        return episode.end(success=last == RIGHT, truncated=last == THINK)


class Main(Experiment):
    """Success at the end and of training rollouts, and the share of responses without an answer at the end."""

    arms: ClassVar = {
        NONE: [_NO_T, _NO_C],
        FULL: [_T, _C, *_R],
        "C + R": [_NO_T, _C, *_R],
        "T + R": [_T, _NO_C, *_R],
        "T + C": [_T, _C],
    }
    common: ClassVar = ["train.epochs=2", "train.learning_rate=0.05"]
    figures: ClassVar = {
        "end": Figure("success at the end, %", 1, 100),
        "mean": Figure("success of training rollouts, %", 1, 100),
        "overlong": Figure("training rollouts without an answer, %", 1, 100),
    }
    claims = (
        Claim(text="the preset: above none of its parts", arm=FULL, against=NONE, figure="mean", above=0),
        Claim(text="T helps: the preset above C + R", arm=FULL, against="C + R", figure="mean", above=0),
        Claim(text="C helps: the preset above T + R", arm=FULL, against="T + R", figure="mean", above=0),
        Claim(text="R helps: the preset above T + C", arm=FULL, against="T + C", figure="mean", above=0),
        Claim(text="R: fewer responses without an answer", arm=FULL, against="T + C", figure="overlong", below=0),
    )
    budget_tokens = 12_000

    def run(self, settings: Settings, seed: int) -> Measured:
        policy = WorldPolicy(LengthLimit(), settings, seed)
        played: list[Trajectory] = []
        while policy.tokens < self.budget_tokens:
            groups = policy.roll_out([0] * TASKS, ROLLOUTS_PER_GROUP)
            played += [member.trajectory for group in groups for member in group]
            policy.train(groups)
        figures = {
            "end": policy.success([0], 512),
            "mean": float(np.mean([trajectory.success for trajectory in played])),
            "overlong": float(np.mean([trajectory.status != "completed" for trajectory in played])),
        }
        return Measured(figures=figures, tokens=policy.tokens)
