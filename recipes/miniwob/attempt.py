"""Attempts of the scripted experts in the real browser: one per task, several sessions at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from msgspec import Struct

from quartet import config
from quartet.env.base import Env, EnvPool
from quartet.env.miniwob.env import MiniWobPool
from quartet.env.miniwob.experts import expert_action
from quartet.env.miniwob.suite import family
from quartet.errors import EnvError, ExpertError, QuartetError
from quartet.on_progress import OnProgress, no_progress
from quartet.policy.prompt import turn_text
from quartet.types import Task

SUITE = "miniwob-24"
MAX_ATTEMPTS = 3

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ExpertTurn(Struct, frozen=True, kw_only=True):
    prompt: str
    """The policy's input for this turn: `quartet.policy.prompt.turn_text`."""
    action: str


class Attempt(Struct, frozen=True, kw_only=True):
    """Result of an expert on one task."""

    task: Task
    turns: list[ExpertTurn]
    success: bool
    error: str = ""
    """Reason for which the expert stopped, or the last error on the page."""


async def attempt(env: Env, task: Task) -> Attempt:
    """Play one episode within its family's `max_turns`. The attempt fails if the expert does not know an action.

    Raise `EnvError` if the browser fails, `ConfigError` for a family that is not in the suite.
    """
    max_turns = family(SUITE, task.family).max_turns
    observation = await env.reset(task)
    turns: list[ExpertTurn] = []
    while len(turns) < max_turns:
        try:
            action = expert_action(task.family, observation)
        except ExpertError as error:
            return Attempt(task=task, turns=turns, success=False, error=error.what)
        turns.append(ExpertTurn(prompt=turn_text(observation, [turn.action for turn in turns]), action=action))
        result = await env.step(action)
        if result.terminated or result.truncated:
            return Attempt(task=task, turns=turns, success=result.info["success"])
        observation = result.observation
    return Attempt(task=task, turns=turns, success=False, error=observation.error or "out of turns")


async def attempt_all(tasks: Iterable[Task], sessions: int, on_progress: OnProgress = no_progress) -> list[Attempt]:
    """Attempt every task once, in the order of `tasks`. Raise the errors of `in_browser`."""
    return await in_browser(tasks, sessions, attempt, on_progress)


async def in_browser(
    tasks: Iterable[Task],
    sessions: int,
    play: Callable[[Env, Task], Awaitable[T]],
    on_progress: OnProgress = no_progress,
) -> list[T]:
    """Run `play` for every task in `sessions` pages of one browser; return results in the order of `tasks`.

    Raise `EnvError` if a task fails `MAX_ATTEMPTS` times, `SetupError` if there is no browser.
    """
    tasks = list(tasks)
    queue = iter(enumerate(tasks))
    results: dict[int, T] = {}
    pool = MiniWobPool(config.Env(name="miniwob", sessions=sessions, screenshots=False))

    async def work() -> None:
        for index, task in queue:
            results[index] = await _play_with_retries(pool, task, play)
            on_progress(len(results), len(tasks))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(sessions):
                group.create_task(work())
    except* QuartetError as failed:
        raise failed.exceptions[0] from None
    finally:
        await pool.close()
    return [results[index] for index in sorted(results)]


async def _play_with_retries(pool: EnvPool, task: Task, play: Callable[[Env, Task], Awaitable[T]]) -> T:
    """Play a task, retrying in a new session after an infrastructure failure, as training does."""
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return await _play_once(pool, task, play)
        except EnvError:
            logger.warning("session lost, restarting %s", task.key, exc_info=True)
    return await _play_once(pool, task, play)


async def _play_once(pool: EnvPool, task: Task, play: Callable[[Env, Task], Awaitable[T]]) -> T:
    env = await pool.acquire()
    healthy = False
    try:
        result = await play(env, task)
        healthy = True
        return result
    finally:
        await pool.release(env, healthy=healthy)
