"""Does a supervised loss on reference data keep what reinforcement learning would forget?

A policy can act in six real and in six simulated situations. It is trained in the simulation, where the right actions
of half of the situations differ. What it learns there carries over, since a real situation looks partly like its
simulation. One demonstration of a real situation joins every group as an anchor.
"""

import random
from typing import ClassVar

import numpy as np

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.episode import Episode, World, demonstration, logits_of
from benchmarks.learning_experiments.table import TablePolicy
from quartet.types import Trajectory

SITUATIONS, ACTIONS = 6, 4
REAL_CHANCE = 0.7
"""Initial success in real situations, after supervised training; in the simulation actions are equally likely."""
LIKENESS = 0.5
"""Share of the squared length of a situation's features that simulation and reality have in common."""
ROLLOUTS_PER_GROUP, BUDGET_TOKENS = 8, 4800
FIRST_ACTION = 2 * SITUATIONS


def simulated_action(situation: int) -> int:
    """Return the right action in the simulation."""
    return FIRST_ACTION + situation % ACTIONS


def real_action(situation: int) -> int:
    """Return the right action in reality, which differs for every other situation."""
    return FIRST_ACTION + (situation + situation % 2) % ACTIONS


class Simulation(World):
    """Token k < 6 shows situation k in the simulation, token 6 + k in reality."""

    def logits(self) -> np.ndarray:
        actions = range(FIRST_ACTION, FIRST_ACTION + ACTIONS)
        rows = {situation: dict.fromkeys(actions, 1 / ACTIONS) for situation in range(SITUATIONS)}
        for situation in range(SITUATIONS):
            others = dict.fromkeys(actions, (1 - REAL_CHANCE) / (ACTIONS - 1))
            rows[SITUATIONS + situation] = others | {real_action(situation): REAL_CHANCE}
        return logits_of(rows, FIRST_ACTION + ACTIONS)

    def features(self) -> np.ndarray:
        size = FIRST_ACTION + ACTIONS
        common = np.zeros((size, SITUATIONS))
        for situation in range(SITUATIONS):
            common[[situation, SITUATIONS + situation], situation] = LIKENESS**0.5
        own = np.eye(size) * np.where(np.arange(size) < FIRST_ACTION, (1 - LIKENESS) ** 0.5, 1.0)[:, None]
        return np.hstack([own, common])

    def play(self, episode: Episode, task: int) -> Trajectory:
        episode.show(task)
        right = episode.respond() == [simulated_action(task)]
        episode.reward(float(right))
        return episode.end(success=right)


def _anchored(weight: float) -> list[str]:
    nll = f"loss.terms=['ppo_clip', {{name = 'nll', weight = {weight}}}]"
    return ["replay.name=reference", nll]


class Main(Experiment):
    """Success in the simulation and in reality, exactly from the probabilities of the policy."""

    arms: ClassVar = {
        "no anchor": [],
        "weight 0.2": _anchored(0.2),
        "weight 1": _anchored(1.0),
    }
    figures: ClassVar = {
        "real": Figure("success in reality, % (at first 70)", 1, 100),
        "simulated": Figure("success in the simulation, %", 1, 100),
    }
    claims = (
        Claim(text="without an anchor reality is forgotten: below 65 %", arm="no anchor", figure="real", below=0.65),
        Claim(
            text="weight 0.2: more success in reality", arm="weight 0.2", against="no anchor", figure="real", above=0
        ),
        Claim(text="weight 0.2: nothing is forgotten, at least 70 %", arm="weight 0.2", figure="real", above=0.7),
        Claim(
            text="weight 0.2: at most 5 points less in the simulation",
            arm="weight 0.2",
            against="no anchor",
            figure="simulated",
            above=-0.05,
        ),
    )

    def run(self, settings: Settings, seed: int) -> Measured:
        policy, draw = TablePolicy(Simulation(), ["train.learning_rate=0.03", *settings], seed), random.Random(seed)
        while policy.tokens < BUDGET_TOKENS:
            groups = policy.roll_out(range(SITUATIONS), ROLLOUTS_PER_GROUP)
            for group in groups:
                situation = draw.randrange(SITUATIONS)
                group.append(demonstration([SITUATIONS + situation], [real_action(situation)]))
            policy.train(groups)
        simulated = [policy.chance(situation, simulated_action(situation)) for situation in range(SITUATIONS)]
        real = [policy.chance(SITUATIONS + situation, real_action(situation)) for situation in range(SITUATIONS)]
        return Measured(
            figures={"real": float(np.mean(real)), "simulated": float(np.mean(simulated))}, tokens=policy.tokens
        )
