"""Does GRPO need imitation of an expert before it, as WebAgent-R1 says of policies that do not know the task?"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import ClassVar

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.episode import demonstration
from benchmarks.learning_experiments.table import TablePolicy
from benchmarks.locks.signs import Player, Signs
from benchmarks.strategies.base import higher
from benchmarks.strategies.contrast import train_on_contrast
from benchmarks.strategies.table import GRPO
from quartet.env.environment.locks import (
    FIRST_HELD_OUT_SEED,
    JAMMED,
    LOCKS,
    Difficulty,
    Locks,
    LocksEnv,
    buttons,
    families,
)
from quartet.policy.prompt import turn_text
from quartet.types import GroupMember, Message, Task

FAMILIES = families("locks")
TRAINING_SEEDS, HELD_OUT_TASKS = 4, 8
"""Number of tasks of each family."""
LITTLE = 0.05
"""Bound of the claims that say that a policy learns next to nothing."""


class Main(Experiment):
    """GRPO from a policy that knows the actions and no lock's code, with and without imitation before it.

    An expert opens one training task of each lock, so one sign of each lock is never demonstrated. Its presses count
    as generated tokens and as environment steps. Environment, loop, credit, loss and train step are the real ones; the
    policy is a table. Training begins with a new optimizer and with the imitated table as reference, as a run does that
    begins with the output of `quartet sft`.
    """

    common = (
        *(*GRPO, "train.groups_per_batch=8", "rollout.loop=latest", "rollout.max_turns=8", "train.learning_rate=1.6"),
        *("loss.terms=[{name='ppo_clip',importance='none'},{name='kl',weight=0.001}]", "credit.epsilon=1e-4"),
    )
    arms: ClassVar = {"grpo": ["sft.steps=0"], "warm-up": ["sft.data=expert.jsonl", "sft.steps=10"]}
    figures: ClassVar = {
        "area": Figure("success at the first try, mean over the run, %", 1, 100),
        "end": Figure("the same at the end, %", 1, 100),
        "gain": Figure("points gained by GRPO", 1, 100),
        "hard": Figure("success at hard locks at the end, %", 1, 100),
        "easy": Figure("success at easy locks at the end, %", 1, 100),
    }
    claims = (
        higher("GRPO after imitation: more success per token than GRPO alone", "warm-up", "grpo"),
        higher("GRPO after imitation: more success at the end than GRPO alone", "warm-up", "grpo", "end"),
        Claim(text="GRPO gains on imitation alone", arm="warm-up", figure="gain", above=0),
        Claim(text="GRPO alone gains less than 5 points", arm="grpo", figure="gain", below=LITTLE),
        Claim(text="GRPO alone opens less than 5 % of the hard locks", arm="grpo", figure="hard", below=LITTLE),
    )
    budget_tokens = 12_000

    def run(self, settings: Settings, seed: int) -> Measured:
        world = Signs(FAMILIES, uniform())
        policy = TablePolicy(world, settings, seed)
        untrained = _measured(world, policy)
        if policy.recipe.sft.data:
            world, tokens = imitated(world, settings, seed)
            policy = TablePolicy(world, settings, seed)
            policy.tokens = tokens
        player, draw, env = Player(world, policy, random.Random(seed)), random.Random(f"tasks {seed}"), LocksEnv()

        def group() -> list[GroupMember]:
            family = draw.choice(FAMILIES)
            return player.group(Task(env="locks", family=family, seed=draw.randrange(TRAINING_SEEDS)), env)

        course = train_on_contrast(policy, self.budget_tokens, group, lambda: _measured(world, policy))
        before = course.points[0]["success"]
        if policy.recipe.sft.data:
            course.tokens.insert(0, 0)
            course.points.insert(0, untrained)
        figures = {
            "area": course.mean("success"),
            "end": course.end("success"),
            "gain": course.end("success") - before,
            "hard": course.end("hard"),
            "easy": course.end("easy"),
        }
        return Measured(figures=figures, tokens=policy.tokens)


def imitated(world: Signs, settings: Settings, seed: int) -> tuple[Signs, int]:
    """Return the world whose initial policy has imitated the expert, and the number of the expert's tokens."""
    draw = random.Random(f"demonstrations {seed}")
    tasks = [Task(env="locks", family=family, seed=draw.randrange(TRAINING_SEEDS)) for family in FAMILIES]
    shown = [exchange for task in tasks for exchange in asyncio.run(_demonstrated(world, task))]
    policy = TablePolicy(world, [*settings, "loss.terms=[{name='nll',uses=['anchor','fresh']}]"], seed)
    for _ in range(policy.recipe.sft.steps):
        policy.train_now([[demonstration([page], [world.token(press)]) for page, press in shown]])
    learned = {
        sign: {press: policy.chance(world.page(sign), world.token(press)) for press in presses}
        for sign, presses in uniform().items()
    }
    return Signs(FAMILIES, learned), len(shown)


async def _demonstrated(world: Signs, task: Task) -> Sequence[tuple[int, str]]:
    """Return the pages that the expert reads while it opens a lock, and its presses."""
    env, expert = LocksEnv(), Locks(Locks.Settings()).expert(task.family, task.seed)
    seen, over, shown = await env.reset(task), False, []
    while not over:
        shown.append((world.page_of(Message("user", turn_text(seen, []))), expert(seen)))
        result = await env.step(shown[-1][1])
        seen, over = result.observation, result.terminated
    return shown


def uniform() -> Mapping[str, Mapping[str, float]]:
    """Return the initial probabilities: uniform over the buttons of each sign."""
    counts = {sign: count for family in FAMILIES for sign, count in buttons(family).items()}
    counts[JAMMED] = max(counts.values())
    return {sign: {f"click [{button}]": 1 / count for button in range(1, count + 1)} for sign, count in counts.items()}


def _measured(world: Signs, policy: TablePolicy) -> dict[str, float]:
    """Return the probability that all first presses of a held-out task are right: of all, hard and easy locks."""
    seeds = range(FIRST_HELD_OUT_SEED, FIRST_HELD_OUT_SEED + HELD_OUT_TASKS)
    of_family = {
        family: fmean(world.first_try(policy, Task(env="locks", family=family, seed=seed)) for seed in seeds)
        for family in FAMILIES
    }

    def of(difficulty: Difficulty) -> float:
        return fmean(chance for family, chance in of_family.items() if LOCKS[family].difficulty == difficulty)

    return {"success": fmean(of_family.values()), "hard": of("hard"), "easy": of("easy")}
