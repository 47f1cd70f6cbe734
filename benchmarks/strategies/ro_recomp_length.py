"""Does RoRecomp shorten rollouts at equal success, and do compensation batches keep it from going too far?"""

import math
import random
from itertools import count
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.episode import Episode
from benchmarks.learning_experiments.table import TablePolicy, logits_of
from benchmarks.learning_experiments.world import World, WorldPolicy
from benchmarks.strategies.base import higher
from benchmarks.strategies.contrast import train_on_contrast
from benchmarks.strategies.table import GRPO
from quartet.types import GroupMember, Trajectory

TASKS = 8
TURNS = (1, 2, 4, 8, 16)
NEEDED_TURNS = [2] * (TASKS // 2) + [8] * (TASKS // 2)
LARGEST_SHARE = 0.75
"""Share of the baseline's turns that the claim allows."""


class Lengths(World):
    """Tasks whose first token chooses one of five numbers of turns; each further turn is one token without a choice.

    Half of the tasks need two turns, the others eight. A rollout with at least as many succeeds with the chance of its
    task, one with fewer with half of it.
    """

    def __init__(self, seed: int) -> None:
        self._chances_Q = np.random.default_rng(seed).uniform(0.5, 0.9, TASKS)

    def logits(self) -> np.ndarray:
        first, going = TASKS, TASKS + len(TURNS)
        chosen = {first + place: 1 / len(TURNS) for place in range(len(TURNS))}
        return logits_of(dict.fromkeys(range(TASKS), chosen) | {going: {going + 1: 1.0}}, going + 2)

    def play(self, episode: Episode, task: int) -> Trajectory:
        episode.show(task)
        (chosen,) = episode.respond()
        place = chosen - TASKS
        for _ in range(TURNS[place] - 1):
            episode.show(TASKS + len(TURNS))
            episode.respond()
        success = episode.draw.random() < self._success(task, place)
        episode.reward(float(success))
        return episode.end(success=success)

    def expected(self, policy: TablePolicy) -> dict[str, float]:
        """Return the expected success and number of turns of a policy, means over tasks."""
        chances_QL = np.array([[policy.chance(q, TASKS + place) for place in range(len(TURNS))] for q in range(TASKS)])
        success_QL = np.array([[self._success(q, place) for place in range(len(TURNS))] for q in range(TASKS)])
        success_Q = (chances_QL * success_QL).sum(1)
        return {
            "success": float(success_Q.mean()),
            "long": float(success_Q[TASKS // 2 :].mean()),
            "turns": float((chances_QL @ np.array(TURNS)).mean()),
        }

    def _success(self, task: int, place: int) -> float:
        return float(self._chances_Q[task]) * (1.0 if TURNS[place] >= NEEDED_TURNS[task] else 0.5)


class Main(Experiment):
    """Plain GRPO, and RoRecomp with its share of the members, with half of them, and with half of them and without
    compensation batches."""

    arms: ClassVar = {
        "all members": [],
        "ro_recomp": ["credit.name=ro_recomp"],
        "half": ["credit.name=ro_recomp", "credit.share=0.5"],
        "half, no compensation": ["credit.name=ro_recomp", "credit.share=0.5", "credit.compensation=0"],
    }
    common = (*GRPO, "train.learning_rate=0.8")
    figures: ClassVar = {
        "turns": Figure("turns at the end", 1),
        "log_turns": Figure("natural logarithm of the turns at the end", 2),
        "end": Figure("success at the end, %", 1, 100),
        "long": Figure("success at the end of tasks that need eight turns, %", 1, 100),
        "area": Figure("success, mean over the run, %", 1, 100),
        "mean_turns": Figure("turns, mean over the run", 1),
    }
    claims = (
        Claim(
            text=f"RoRecomp: {LARGEST_SHARE} x the turns or fewer: logarithm lower by {-math.log(LARGEST_SHARE):.2f}",
            arm="ro_recomp",
            against="all members",
            figure="log_turns",
            below=math.log(LARGEST_SHARE),
        ),
        Claim(
            text="RoRecomp: at most 3 points less success at the end",
            arm="ro_recomp",
            against="all members",
            figure="end",
            above=-0.03,
        ),
        higher(
            "compensation: more success at tasks that need eight turns than without",
            *("half", "half, no compensation", "long"),
        ),
    )
    budget_tokens = 24_000

    def run(self, settings: Settings, seed: int) -> Measured:
        world = Lengths(seed)
        policy, draw, ids = WorldPolicy(world, settings, seed), random.Random(f"tasks {seed}"), count(1)

        def group() -> list[GroupMember]:
            (members,) = policy.roll_out([draw.randrange(TASKS)], policy.recipe.control.rollouts_per_group)
            return [replace(member, rollout_id=next(ids)) for member in members]

        course = train_on_contrast(policy, self.budget_tokens, group, lambda: world.expected(policy))
        figures = {
            "turns": course.end("turns"),
            "log_turns": math.log(course.end("turns")),
            "end": course.end("success"),
            "long": course.end("long"),
            "area": course.mean("success"),
            "mean_turns": course.mean("turns"),
        }
        return Measured(figures=figures, tokens=policy.tokens)
