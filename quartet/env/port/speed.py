"""Steps per second of reference and port, without an environment host and without an agent in between."""

import inspect
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from quartet import config
from quartet.env import make_environment, suite_families
from quartet.env.base import acting
from quartet.env.check.agents import curious
from quartet.env.check.subject import Response
from quartet.env.port.verify import MAX_TURNS
from quartet.types import Task

ROUNDS = 5
"""Number of measurements of each side, in turns; the median counts."""
SECONDS = 0.5
"""Least duration of a measurement."""

Episode = tuple[Task, list[Response]]


async def steps_per_second(reference: config.Env, port: config.Env, seeds: Sequence[int]) -> tuple[float, float]:
    """Return the rates of reference and port, which replay episodes of random agents, resets included."""
    tasks = [Task(env=port.name, family=family, seed=seed) for family in suite_families(port) for seed in seeds]
    async with _session(port) as session:
        turns = make_environment(port).max_turns
        episodes = [
            (task, await _recorded(session, task, draw, turns(task.family) or MAX_TURNS))
            for draw, task in enumerate(tasks)
        ]
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for side, env in zip(rates, (reference, port), strict=True):
            side.append(await _rate(env, episodes))
    return statistics.median(rates[0]), statistics.median(rates[1])


@asynccontextmanager
async def _session(env: config.Env) -> AsyncIterator[Any]:
    pool = make_environment(env).pool(env)
    session = await pool.acquire()
    yield session
    await pool.release(session, healthy=True)
    await pool.close()


async def _recorded(session: Any, task: Task, draw: int, max_turns: int) -> list[Response]:
    """Return the responses of an episode of a random agent."""
    act, seen, responses = curious(draw), await _value(session.reset(task)), list[Response]()
    for _ in range(max_turns):
        responses.append(act(seen))
        result = await _step(session, responses[-1])
        if result.terminated or result.truncated:
            break
        seen = result.observation
    return responses


async def _rate(env: config.Env, episodes: Sequence[Episode]) -> float:
    """Replay the episodes until the time is over; return steps per second."""
    async with _session(env) as session:
        steps, started = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - started) < SECONDS:
            for task, responses in episodes:
                await _value(session.reset(task))
                for response in responses:
                    await _step(session, response)
                steps += len(responses)
    return steps / elapsed


async def _step(session: Any, response: Response) -> Any:
    return await _value(session.step(response) if isinstance(response, str) else acting(session).act(response))


async def _value(answer: Any) -> Any:
    """Return the answer of a coroutine or of a plain function, which is called without a thread."""
    return await answer if inspect.isawaitable(answer) else answer
