"""Does a supervised loss on reference data keep what reinforcement learning would forget?

A policy can act in eight real and in eight simulated situations. It is trained in the simulation, where the right
actions of half of the situations differ. What it learns there carries over, since a real situation looks partly like
its simulation. One demonstration of a real situation joins every group as an anchor. Only the first four situations are
demonstrated; the other four measure the effect of anchors on situations without a demonstration.
"""

import random
from typing import ClassVar

import numpy as np

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.episode import Episode, demonstration
from benchmarks.learning_experiments.table import logits_of
from benchmarks.learning_experiments.world import World, WorldPolicy
from quartet.types import Trajectory

SITUATIONS, DEMONSTRATED, ACTIONS = 8, 4, 4
REAL_CHANCE = 0.7
"""Initial success in real situations, after supervised training; in the simulation actions are equally likely."""
LIKENESS = 0.5
"""Share of the squared length of a situation's features that simulation and reality have in common."""
ROLLOUTS_PER_GROUP = 8
FIRST_ACTION = 2 * SITUATIONS


def simulated_action(situation: int) -> int:
    """Return the right action in the simulation."""
    return FIRST_ACTION + situation % ACTIONS


def real_action(situation: int) -> int:
    """Return the right action in reality, which differs for every other situation."""
    return FIRST_ACTION + (situation + situation % 2) % ACTIONS


class Simulation(World):
    """Token k < 8 shows situation k in the simulation, token 8 + k in reality."""

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


def _not_forgotten(figure: str, text: str, against: str | None = "no anchor") -> Claim:
    return Claim(text=text, arm="weight 0.2", against=against, figure=figure, above=0 if against else REAL_CHANCE)


class Main(Experiment):
    """Success in the simulation and in reality, exactly from the probabilities of the policy."""

    arms: ClassVar = {
        "no anchor": [],
        "demonstrations only": ["replay.name=reference", "loss.terms=['nll']"],
        "weight 0.05": _anchored(0.05),
        "weight 0.2": _anchored(0.2),
        "weight 1": _anchored(1.0),
    }
    common: ClassVar = ["train.learning_rate=0.03"]
    figures: ClassVar = {
        "demonstrated": Figure("success in reality, demonstrated, % (at first 70)", 1, 100),
        "others": Figure("success in reality, not demonstrated, % (at first 70)", 1, 100),
        "simulated": Figure("success in the simulation, % (at first 25)", 1, 100),
    }
    claims = (
        Claim(text="without an anchor reality is forgotten: below 70 %", arm="no anchor", figure="others", below=0.7),
        _not_forgotten("demonstrated", "weight 0.2: more success in demonstrated situations than without"),
        _not_forgotten("others", "weight 0.2: more success in situations that are not demonstrated than without"),
        _not_forgotten("others", "weight 0.2: at least 70 % in situations that are not demonstrated", against=None),
        _not_forgotten(
            "demonstrated",
            "weight 0.2: more success in demonstrated situations than demonstrations only",
            against="demonstrations only",
        ),
        Claim(
            text="weight 0.2: at most 5 points less in the simulation",
            arm="weight 0.2",
            against="no anchor",
            figure="simulated",
            above=-0.05,
        ),
    )
    budget_tokens = 6400

    def run(self, settings: Settings, seed: int) -> Measured:
        policy, draw = WorldPolicy(Simulation(), settings, seed), random.Random(seed)
        while policy.tokens < self.budget_tokens:
            groups = policy.roll_out(range(SITUATIONS), ROLLOUTS_PER_GROUP)
            for group in groups:
                situation = draw.randrange(DEMONSTRATED)
                group.append(demonstration([SITUATIONS + situation], [real_action(situation)]))
            policy.train(groups)
        simulated = [policy.chance(situation, simulated_action(situation)) for situation in range(SITUATIONS)]
        real = [policy.chance(SITUATIONS + situation, real_action(situation)) for situation in range(SITUATIONS)]
        figures = {
            "demonstrated": float(np.mean(real[:DEMONSTRATED])),
            "others": float(np.mean(real[DEMONSTRATED:])),
            "simulated": float(np.mean(simulated)),
        }
        return Measured(figures=figures, tokens=policy.tokens)
