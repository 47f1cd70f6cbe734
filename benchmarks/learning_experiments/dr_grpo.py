"""Does GRPO make wrong answers longer, and Dr. GRPO not?

An answer is right or wrong by chance. The policy sees the verdict, then explains the answer at a length of its choice.
The reward does not depend on the length, so an unbiased method leaves the lengths alone. GRPO divides the loss of an
answer by its length: a wrong answer is punished less per token if it is long.
"""

from typing import ClassVar

import numpy as np

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.episode import Episode
from benchmarks.learning_experiments.table import TablePolicy, logits_of
from benchmarks.learning_experiments.world import World, WorldPolicy
from quartet.types import Trajectory

PROMPT, ANSWER, RIGHT, WRONG, MORE_RIGHT, MORE_WRONG, END = range(7)
MORE = 0.875
"""Initial probability of another word: 8 words on average."""
MAX_WORDS = 64
TASKS, ROLLOUTS_PER_GROUP = 4, 8


class Explanations(World):
    """An answer that is right half of the time, then an explanation of any length."""

    def logits(self) -> np.ndarray:
        right, wrong = {MORE_RIGHT: MORE, END: 1 - MORE}, {MORE_WRONG: MORE, END: 1 - MORE}
        rows = {PROMPT: {ANSWER: 1.0}, RIGHT: right, MORE_RIGHT: right, WRONG: wrong, MORE_WRONG: wrong}
        return logits_of(rows, 7)

    def play(self, episode: Episode, task: int) -> Trajectory:
        episode.show(PROMPT)
        episode.respond()
        right = episode.draw.random() < 0.5
        episode.show(RIGHT if right else WRONG)
        episode.respond(MAX_WORDS, {END})
        episode.reward(float(right))
        return episode.end(success=right)


class Main(Experiment):
    """Mean length of wrong and of right explanations at the end, without the limit of words."""

    arms: ClassVar = {
        "grpo": ["credit.name=grpo", "loss.aggregation=sequence_mean"],
        "dr_grpo": ["credit.name=dr_grpo", "loss.aggregation=fixed_divisor", f"loss.divisor_tokens={MAX_WORDS}"],
        "grpo, fixed divisor": [
            *("credit.name=grpo", "loss.aggregation=fixed_divisor", f"loss.divisor_tokens={MAX_WORDS}"),
        ],
        "grpo, token mean": ["credit.name=grpo", "loss.aggregation=token_mean"],
    }
    common: ClassVar = ["train.learning_rate=0.01"]
    figures: ClassVar = {
        "wrong": Figure("words of a wrong answer (at first 8)", 1),
        "right": Figure("words of a right answer (at first 8)", 1),
    }
    claims = (
        Claim(text="GRPO: wrong answers get longer than 12 words", arm="grpo", figure="wrong", above=12),
        Claim(text="GRPO: right answers get shorter than 6 words", arm="grpo", figure="right", below=6),
        Claim(
            text="Dr. GRPO: wrong answers are shorter than GRPO's",
            arm="dr_grpo",
            against="grpo",
            figure="wrong",
            below=0,
        ),
        Claim(text="Dr. GRPO: wrong answers stay below 10 words", arm="dr_grpo", figure="wrong", below=10),
        Claim(
            text="the divisor alone does it: GRPO's wrong answers with it are shorter",
            arm="grpo, fixed divisor",
            against="grpo",
            figure="wrong",
            below=0,
        ),
        Claim(
            text="the token mean alone does it: GRPO's wrong answers with it are shorter",
            arm="grpo, token mean",
            against="grpo",
            figure="wrong",
            below=0,
        ),
    )
    budget_tokens = 30_000

    def run(self, settings: Settings, seed: int) -> Measured:
        policy = WorldPolicy(Explanations(), settings, seed)
        while policy.tokens < self.budget_tokens:
            policy.train(policy.roll_out([0] * TASKS, ROLLOUTS_PER_GROUP))
        figures = {
            "wrong": _mean_words(policy, WRONG, MORE_WRONG),
            "right": _mean_words(policy, RIGHT, MORE_RIGHT),
        }
        return Measured(figures=figures, tokens=policy.tokens)


def _mean_words(policy: TablePolicy, first: int, more: int) -> float:
    """Return the mean number of words of an explanation, END included, at most `MAX_WORDS`."""
    goes_on = [1.0, policy.chance(first, more)]
    goes_on += [policy.chance(more, more)] * (MAX_WORDS - 2)
    return float(np.cumprod(goes_on).sum())
