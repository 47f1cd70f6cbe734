"""Episodes of the experts, which are retried after a failure of the environment as rollouts are."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from msgspec import Struct, field

from quartet.env.base import EnvPool
from quartet.env.miniwob.experts import EXPERTS, PLANS, make_expert
from quartet.env.miniwob.suite import family
from quartet.errors import EnvError, ExpertError
from quartet.types import Task

SUITE = "miniwob-all"
MAX_ATTEMPTS = 10
FAMILIES = [*EXPERTS, *PLANS]


class Played(Struct):
    """Results so far."""

    results: dict[int, bool] = field(default_factory=dict)
    """Success by the number of the episode."""
    errors: Counter[str] = field(default_factory=Counter)
    """Number of failed attempts, by the beginning of the error."""
    repeated: int = 0
    """Number of episodes that had more than one result."""
    given_up: int = 0
    """Number of episodes without a result after `MAX_ATTEMPTS`."""

    def add(self, number: int, success: bool) -> None:
        self.repeated += number in self.results
        self.results[number] = success


async def play_all(pool: EnvPool, episodes: int, sessions: int, after_each: Callable[[Played], None]) -> Played:
    """Play the episodes in `sessions` sessions at once. `after_each` is called after each one."""
    played, numbers = Played(), iter(range(episodes))

    async def work(numbers: Iterator[int]) -> None:
        for number in numbers:
            name = FAMILIES[number % len(FAMILIES)]
            await _play(pool, number, Task(env="miniwob", family=name, seed=number // len(FAMILIES)), played)
            after_each(played)

    async with asyncio.TaskGroup() as group:
        for _ in range(sessions):
            group.create_task(work(numbers))
    return played


async def _play(pool: EnvPool, number: int, task: Task, played: Played) -> None:
    for _ in range(MAX_ATTEMPTS):
        try:
            played.add(number, await _attempt(pool, task))
            return
        except EnvError as error:
            played.errors[error.what.split(":")[0][:60]] += 1
    played.given_up += 1


async def _attempt(pool: EnvPool, task: Task) -> bool:
    session, healthy = await pool.acquire(), False
    try:
        expert = make_expert(task.family)
        assert expert is not None
        observation = await session.reset(task)
        for _ in range(family(SUITE, task.family).max_turns):
            try:
                action = expert(observation)
            except ExpertError:
                action = "done"
            result = await session.step(action)
            if result.terminated or result.truncated:
                healthy = True
                return bool(result.info["success"])
            observation = result.observation
        healthy = True
        return False
    finally:
        await pool.release(session, healthy=healthy)
