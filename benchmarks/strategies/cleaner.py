"""Does CLEANER's rollback give more first presses that do not fail than plain GRPO, if most presses fail at first?"""

import asyncio
import random
from collections.abc import Sequence
from statistics import fmean
from typing import ClassVar

import numpy as np

from benchmarks.learning_experiments.base import Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.table import TablePolicy
from benchmarks.locks.signs import Player, Signs
from benchmarks.strategies.base import higher
from benchmarks.strategies.table import GRPO
from quartet.env.environment.locks import FIRST_HELD_OUT_SEED, JAMMED, SUITES, LocksEnv, buttons
from quartet.types import GroupMember, Task

FAMILIES = [name for name, lock in SUITES["locks"].items() if lock.difficulty != "hard"]
PRESSED_BUTTONS = 7
"""Number of buttons that the initial policy presses equally often at every sign; the locks have two to five."""
TRAINING_SEEDS, HELD_OUT_TASKS = 4, 8
"""Number of tasks of each family."""


class Main(Experiment):
    """Plain GRPO, against the same with the loop `cleaner`, on the easy and medium locks of `locks`.

    A press of a missing button fails with an error, changes nothing and may be tried again, at the cost of a turn.
    GRPO rewards a failed press with the rest of a success; CLEANER trains the repaired press in its place. Environment,
    loops, credit, loss and train step are the real ones; the policy is a table.
    """

    common = (*GRPO, "train.groups_per_batch=8", "rollout.max_turns=8", "train.learning_rate=0.8")
    arms: ClassVar = {
        "grpo": ["rollout.loop=latest"],
        "cleaner": ["rollout.loop=cleaner", "rollout.history=latest"],
    }
    figures: ClassVar = {
        "valid": Figure("first presses that do not fail, mean over the run, %", 1, 100),
        "valid_end": Figure("the same at the end, %", 1, 100),
        "area": Figure("success at the first try, mean over the run, %", 1, 100),
        "end": Figure("the same at the end, %", 1, 100),
        "failed": Figure("generated presses that failed, %", 1, 100),
    }
    claims = (
        higher("CLEANER: more first presses that do not fail, per token", "cleaner", "grpo", "valid"),
        higher("CLEANER: more success at the first try, per token", "cleaner", "grpo"),
    )
    budget_tokens = 12_000

    def run(self, settings: Settings, seed: int) -> Measured:
        return asyncio.run(self._run(settings, seed))

    async def _run(self, settings: Settings, seed: int) -> Measured:
        uniform = {f"click [{button}]": 1 / PRESSED_BUTTONS for button in range(1, PRESSED_BUTTONS + 1)}
        signs = {sign: uniform for family in FAMILIES for sign in buttons(family)} | {JAMMED: uniform}
        world = Signs(FAMILIES, signs)
        policy = TablePolicy(world, settings, seed)
        player, draw, env = Player(world, policy, random.Random(seed)), random.Random(f"tasks {seed}"), CountedLocks()
        curve = [(0, *_measured(world, policy))]
        while player.tokens < self.budget_tokens:
            groups = []
            for _ in range(policy.recipe.train.groups_per_batch):
                task = Task(env="locks", family=draw.choice(FAMILIES), seed=draw.randrange(TRAINING_SEEDS))
                played = [await player.play(task, env) for _ in range(policy.recipe.control.rollouts_per_group)]
                if len({trajectory.reward for trajectory in played}) > 1:
                    groups.append([GroupMember(rollout_id=n, trajectory=one) for n, one in enumerate(played)])
            if groups:
                policy.train_now(groups)
            curve.append((player.tokens, *_measured(world, policy)))
        tokens, valid, success = np.array(curve, dtype=float).T
        figures = {
            "valid": float(np.trapezoid(valid, tokens) / tokens[-1]),
            "valid_end": float(valid[-1]),
            "area": float(np.trapezoid(success, tokens) / tokens[-1]),
            "end": float(success[-1]),
            "failed": env.failed / player.tokens,
        }
        return Measured(figures=figures, tokens=player.tokens)


class CountedLocks(LocksEnv):
    """Locks that count the presses that fail, also those that are rolled back."""

    failed = 0

    async def step(self, action: str):
        result = await super().step(action)
        self.failed += bool(result.observation.error)
        return result


def _measured(world: Signs, policy: TablePolicy) -> Sequence[float]:
    """Return the probabilities that the first press at a sign does not fail, and that all first presses of a held-out
    task are right."""
    valid = [
        sum(policy.chance(world.page(sign), world.token(f"click [{button}]")) for button in range(1, count + 1))
        for family in FAMILIES
        for sign, count in buttons(family).items()
    ]
    held_out = range(FIRST_HELD_OUT_SEED, FIRST_HELD_OUT_SEED + HELD_OUT_TASKS)
    tasks = [Task(env="locks", family=family, seed=seed) for family in FAMILIES for seed in held_out]
    return fmean(valid), fmean(world.first_try(policy, task) for task in tasks)
