"""Compare a port of an environment with its reference: members, first observations, single actions, whole episodes.

The levels are the property, interaction and rollout checks of *Automatic Generation of High-Performance RL
Environments*. Comparison ends at the first difference. Later levels need more actions to reach one, so the first is the
easiest to explain.
"""

from collections.abc import Callable, Sequence
from itertools import cycle, islice, product
from typing import Any

from msgspec import Struct

from quartet import config
from quartet.env import make_environment, suite_families
from quartet.env.check.agents import MALFORMED, curious
from quartet.env.check.subject import Response
from quartet.env.port.sides import DifferenceError, Sides
from quartet.errors import ConfigError
from quartet.types import Task

MAX_TURNS = 200
"""Maximum number of turns of a rollout in an environment without a limit of its own: random agents need many."""
FIRST_ACTIONS = 16
"""Number of random first actions that are compared in every task."""


class Verified(Struct, kw_only=True):
    """Counts of what was compared, and the first difference."""

    families: list[str]
    resets: int = 0
    interactions: int = 0
    rollouts: int = 0
    rewarded: int = 0
    """Number of rollouts with a reward that is not 0."""
    turns: int = 0
    """Number of turns of all rollouts."""
    level: str = ""
    """Level of the difference: `members`, `resets`, `interactions` or `rollouts`; empty if there is none."""
    difference: str = ""
    task: str = ""
    responses: list[str] = []
    """Responses of the episode with the difference; the last one led to it."""


class Verification:
    """One comparison; `verified` is its result so far."""

    def __init__(
        self, reference: config.Env, port: config.Env, seeds: Sequence[int], rollouts: int, tolerance: float = 0.0
    ) -> None:
        """Compare the families of the port. Numbers may differ by `tolerance`, absolutely or relative to the larger.

        Raise `ConfigError` if the reference lacks a family.
        """
        self._envs, self._tolerance = (reference, port), tolerance
        self._reference, self._port = make_environment(reference), make_environment(port)
        families, known = suite_families(port), self._reference.families()
        if unknown := [family for family in families if family not in known]:
            raise ConfigError(f"the reference has no task family {unknown[0]!r}", f"it has {', '.join(known)}")
        self._rollouts = rollouts
        self._tasks = [Task(env=reference.name, family=family, seed=seed) for seed, family in product(seeds, families)]
        self.verified = Verified(families=families)

    async def run(self) -> Verified:
        """Compare level by level. Raise the error if both sides fail."""
        async with Sides.open(*self._envs, self._tolerance) as sides:
            try:
                self._compare_members()
                await self._compare_resets(sides)
                await self._compare_interactions(sides)
                await self._compare_rollouts(sides)
            except DifferenceError as error:
                self.verified.difference = str(error)
        return self.verified

    def _compare_members(self) -> None:
        """Compare what the classes declare."""
        self.verified.level = "members"
        members: dict[str, Callable[[Any], object]] = {"typed_actions": lambda side: side.typed_actions}
        for family in self.verified.families:
            members[f"max_turns({family!r})"] = lambda side, family=family: side.max_turns(family)
            members[f"num_train_tasks({family!r})"] = lambda side, family=family: side.num_train_tasks(family)
        for name, read in members.items():
            expected, found = read(self._reference), read(self._port)
            if expected != found:
                raise DifferenceError(f"`{name}` is {expected!r} in the reference and {found!r} in the port")

    async def _compare_resets(self, sides: Sides) -> None:
        """Compare the first observation of every task."""
        for task in self._begin("resets"):
            self.verified.task = task.key
            await sides.reset(task)
            self.verified.resets += 1

    async def _compare_interactions(self, sides: Sides) -> None:
        """Compare single actions, random and malformed, after a reset."""
        for task in self._begin("interactions"):
            seen = await sides.reset(task)
            for response in [*MALFORMED, *(curious(draw)(seen) for draw in range(FIRST_ACTIONS))]:
                self._note(task, response)
                await sides.reset(task)
                await sides.step(response)
                self.verified.interactions += 1

    async def _compare_rollouts(self, sides: Sides) -> None:
        """Compare episodes of random agents, turn by turn."""
        for number, task in enumerate(islice(cycle(self._begin("rollouts")), self._rollouts)):
            act, seen, reward = curious(number), await sides.reset(task), 0.0
            self._note(task)
            for _ in range(self._reference.max_turns(task.family) or MAX_TURNS):
                response = act(seen)
                self.verified.responses.append(_written(response))
                result = await sides.step(response)
                self.verified.turns += 1
                reward += abs(result.reward) + sum(map(abs, result.info.get("rewards", ())))
                if result.terminated or result.truncated:
                    break
                seen = result.observation
            self.verified.rollouts += 1
            self.verified.rewarded += reward > 0
        self.verified.level = self.verified.task = ""
        self.verified.responses = []

    def _begin(self, level: str) -> list[Task]:
        self.verified.level = level
        return self._tasks

    def _note(self, task: Task, *responses: Response) -> None:
        """Keep what is being compared, so that a difference can be reproduced."""
        self.verified.task, self.verified.responses = task.key, [_written(response) for response in responses]


def _written(response: Response) -> str:
    return response if isinstance(response, str) else repr(response)
