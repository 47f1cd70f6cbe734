"""Does CLEANER's rollback give more first presses that do not fail than plain GRPO, if most presses fail at first?"""

import random
from statistics import fmean
from typing import ClassVar

from benchmarks.learning_experiments.base import Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.table import TablePolicy
from benchmarks.locks.signs import Player, Signs
from benchmarks.strategies.base import higher
from benchmarks.strategies.contrast import train_on_contrast
from benchmarks.strategies.table import GRPO
from quartet.env.environment.locks import FIRST_HELD_OUT_SEED, JAMMED, SUITES, LocksEnv, buttons
from quartet.types import GroupMember, Task

FAMILIES = [name for name, lock in SUITES["locks"].items() if lock.difficulty != "hard"]
SIGNS = {sign: count for family in FAMILIES for sign, count in buttons(family).items()}
"""Number of buttons at each sign."""
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
        uniform = {f"click [{button}]": 1 / PRESSED_BUTTONS for button in range(1, PRESSED_BUTTONS + 1)}
        world = Signs(FAMILIES, dict.fromkeys([*SIGNS, JAMMED], uniform))
        policy = TablePolicy(world, settings, seed)
        player, draw, env = Player(world, policy, random.Random(seed)), random.Random(f"tasks {seed}"), CountedLocks()

        def group() -> list[GroupMember]:
            family = draw.choice(FAMILIES)
            return player.group(Task(env="locks", family=family, seed=draw.randrange(TRAINING_SEEDS)), env)

        course = train_on_contrast(policy, self.budget_tokens, group, lambda: _measured(world, policy))
        figures = {
            "valid": course.mean("valid"),
            "valid_end": course.end("valid"),
            "area": course.mean("success"),
            "end": course.end("success"),
            "failed": env.failed / policy.tokens,
        }
        return Measured(figures=figures, tokens=policy.tokens)


class CountedLocks(LocksEnv):
    """Locks that count the presses that fail, also those that are rolled back."""

    failed = 0

    async def step(self, action: str):
        result = await super().step(action)
        self.failed += bool(result.observation.error)
        return result


def _measured(world: Signs, policy: TablePolicy) -> dict[str, float]:
    """Return the probabilities that the first press at a sign does not fail, and that all first presses of a held-out
    task are right."""
    valid = [
        sum(policy.chance(world.page(sign), world.token(f"click [{button}]")) for button in range(1, count + 1))
        for sign, count in SIGNS.items()
    ]
    held_out = range(FIRST_HELD_OUT_SEED, FIRST_HELD_OUT_SEED + HELD_OUT_TASKS)
    tasks = [Task(env="locks", family=family, seed=seed) for family in FAMILIES for seed in held_out]
    return {"valid": fmean(valid), "success": fmean(world.first_try(policy, task) for task in tasks)}
