"""Does the batch's standard deviation protect easy tasks from a noisy reward?

The verifier adds noise to every reward. In a group that always succeeds the noise is the only difference, and GRPO
divides by its standard deviation: noise is learned as strongly as success. Lite PPO divides by the standard deviation
of the whole batch.
"""

from typing import ClassVar

import numpy as np

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.episode import Episode
from benchmarks.learning_experiments.table import logits_of
from benchmarks.learning_experiments.world import World, WorldPolicy
from quartet.types import Trajectory

EASY, HARD, ARMS = 8, 8, 6
EASY_CHANCE, NOISE = 0.95, 0.1
ROLLOUTS_PER_GROUP = 8
TASKS = EASY + HARD


class NoisyVerifier(World):
    """Tasks with one right answer of six; half of them are nearly solved at first."""

    def logits(self) -> np.ndarray:
        wrong = {TASKS + arm: (1 - EASY_CHANCE) / (ARMS - 1) for arm in range(1, ARMS)}
        easy = {TASKS: EASY_CHANCE} | wrong
        hard = {TASKS + arm: 1 / ARMS for arm in range(ARMS)}
        rows = {task: easy if task < EASY else hard for task in range(TASKS)}
        return logits_of(rows, TASKS + ARMS)

    def play(self, episode: Episode, task: int) -> Trajectory:
        episode.show(task)
        right = episode.respond() == [TASKS]
        episode.reward(right + episode.draw.gauss(0.0, NOISE))
        return episode.end(success=right)


class Main(Experiment):
    """Success at the end, of easy and of hard tasks."""

    arms: ClassVar = {
        "grpo": ["credit.name=grpo"],
        "lite_ppo": ["credit.name=lite_ppo"],
        "dr_grpo": ["credit.name=dr_grpo"],
    }
    common: ClassVar = ["train.learning_rate=0.05"]
    figures: ClassVar = {
        "all": Figure("success, %", 2, 100),
        "easy": Figure("success on easy tasks, %", 2, 100),
        "hard": Figure("success on hard tasks, %", 2, 100),
    }
    claims = (
        Claim(text="Lite PPO: more success than GRPO", arm="lite_ppo", against="grpo", figure="all", above=0),
        Claim(
            text="Lite PPO: more success than GRPO on easy tasks",
            arm="lite_ppo",
            against="grpo",
            figure="easy",
            above=0,
        ),
        Claim(
            text="Lite PPO: more success than GRPO on hard tasks",
            arm="lite_ppo",
            against="grpo",
            figure="hard",
            above=0,
        ),
    )
    budget_tokens = 6400

    def run(self, settings: Settings, seed: int) -> Measured:
        policy = WorldPolicy(NoisyVerifier(), settings, seed)
        while policy.tokens < self.budget_tokens:
            policy.train(policy.roll_out(range(TASKS), ROLLOUTS_PER_GROUP))
        chances = [policy.chance(task, TASKS) for task in range(TASKS)]
        easy, hard = float(np.mean(chances[:EASY])), float(np.mean(chances[EASY:]))
        return Measured(figures={"all": (easy + hard) / 2, "easy": easy, "hard": hard}, tokens=policy.tokens)
