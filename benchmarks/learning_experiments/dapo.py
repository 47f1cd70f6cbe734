"""Does a higher upper clip bound let a rare right token grow faster?

A token with probability p gains about p * clip_high per train step, if it takes enough optimizer steps to reach the
clip bound. From 2 % to 10 % that takes ln(5) / ln(1.2) = 8.8 train steps, and ln(5) / ln(1.28) = 6.5 with the higher
bound.
"""

from typing import ClassVar

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.two_answers import PROMPT, RIGHT, TwoAnswers
from benchmarks.learning_experiments.world import WorldPolicy

CHANCE, GROWN, COMMON = 0.02, 0.1, 0.5
"""Probability of the right token at first, and at the two points where its growth is measured."""
ROLLOUTS_PER_GROUP, MAX_TOKENS = 256, 40 * 256


class Main(Experiment):
    """Generated tokens until the right token has a probability of 10 %, and of 50 %."""

    arms: ClassVar = {
        "clip_high 0.2": ["loss.terms.ppo_clip.clip_high=0.2"],
        "clip_high 0.28": ["loss.terms.ppo_clip.clip_high=0.28"],
        "clip_high 0.28, epochs 1": ["loss.terms.ppo_clip.clip_high=0.28", "train.epochs=1"],
        "clip_high 0.2, epochs 1": ["loss.terms.ppo_clip.clip_high=0.2", "train.epochs=1"],
    }
    # Without momentum, which would carry the token beyond the bound; the second moment keeps its scale.
    common: ClassVar = ["train.epochs=40", "train.adam_beta1=0", "train.adam_beta2=0.9999", "train.learning_rate=0.01"]
    figures: ClassVar = {
        "grown": Figure("tokens until 10 %", limit=MAX_TOKENS),
        "common": Figure("tokens until 50 %", limit=MAX_TOKENS),
    }
    claims = (
        Claim(
            text="clip-higher: fewer tokens until 10 %",
            arm="clip_high 0.28",
            against="clip_high 0.2",
            figure="grown",
            below=0,
        ),
        Claim(
            text="clip-higher: fewer tokens until 50 %",
            arm="clip_high 0.28",
            against="clip_high 0.2",
            figure="common",
            below=0,
        ),
    )
    budget_tokens = MAX_TOKENS

    def run(self, settings: Settings, seed: int) -> Measured:
        policy = WorldPolicy(TwoAnswers(CHANCE), settings, seed)
        figures: dict[str, float] = {}
        while policy.tokens < self.budget_tokens and len(figures) < 2:
            policy.train(policy.roll_out([0], ROLLOUTS_PER_GROUP))
            for name, chance in (("grown", GROWN), ("common", COMMON)):
                if policy.chance(PROMPT, RIGHT) >= chance:
                    figures.setdefault(name, policy.tokens)
        return Measured(figures={"grown": policy.tokens, "common": policy.tokens} | figures, tokens=policy.tokens)
