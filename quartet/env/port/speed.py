"""Steps per second of reference and port, without an environment host and without an agent in between."""

import inspect
import statistics
import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from quartet import config
from quartet.env import make_environment, suite_families
from quartet.env.base import acting
from quartet.env.check.agents import curious
from quartet.env.check.subject import Response
from quartet.env.deadlines import Deadlines
from quartet.env.port.session import opened
from quartet.env.port.verify import MAX_TURNS
from quartet.types import Task

ROUNDS = 6
"""Number of measurements of each side, in turns. Six independent ratios lie on both sides of their median with a
probability of 97 %."""
SECONDS = 0.5
"""Least duration of a measurement."""

Episode = tuple[Task, list[Response]]


class Speed(Struct, frozen=True, kw_only=True):
    """Medians of all rounds, and the range of the ratio."""

    reference_steps_per_second: float
    port_steps_per_second: float
    ratio: float
    ratio_low: float
    ratio_high: float

    @property
    def shows_difference(self) -> bool:
        """True if one side was faster in every round."""
        return not self.ratio_low <= 1 <= self.ratio_high


async def steps_per_second(reference: config.Env, port: config.Env, seeds: Sequence[int]) -> Speed:
    """Return the speeds of reference and port, which replay episodes of random agents in turns, resets included."""
    tasks = [Task(env=port.name, family=family, seed=seed) for family in suite_families(port) for seed in seeds]
    limits = Deadlines.of(port)
    async with opened(port, guarded=False) as session:
        turns = make_environment(port).max_turns
        episodes = [
            (task, await _recorded(session, task, draw, turns(task.family) or MAX_TURNS, limits))
            for draw, task in enumerate(tasks)
        ]
    rates = [(await _rate(reference, episodes), await _rate(port, episodes)) for _ in range(ROUNDS)]
    slow, fast = (statistics.median(side) for side in zip(*rates, strict=True))
    # Both sides of a round had about the same load of the machine, so the ratio is taken within it.
    ratios = [second / first for first, second in rates]
    return Speed(
        reference_steps_per_second=slow,
        port_steps_per_second=fast,
        ratio=statistics.median(ratios),
        ratio_low=min(ratios),
        ratio_high=max(ratios),
    )


async def _recorded(session: Any, task: Task, draw: int, max_turns: int, limits: Deadlines) -> list[Response]:
    """Return the responses of an episode of a random agent."""
    act, responses = curious(draw), list[Response]()
    async with limits.bounded("reset", f"the reset of {task.key}"):
        seen = await _value(session.reset(task))
    for _ in range(max_turns):
        responses.append(act(seen))
        async with limits.bounded("step", f"the step {responses[-1]!r:.60} of {task.key}"):
            result = await _step(session, responses[-1])
        if result.terminated or result.truncated:
            break
        seen = result.observation
    return responses


async def _rate(env: config.Env, episodes: Sequence[Episode]) -> float:
    """Replay the episodes until the time is over; return steps per second."""
    limits = Deadlines.of(env)
    async with opened(env, guarded=False) as session:
        steps, started = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - started) < SECONDS:
            for episode in episodes:
                await _replay(session, episode, limits)
                steps += len(episode[1])
    return steps / elapsed


async def _replay(session: Any, episode: Episode, limits: Deadlines) -> None:
    """Play an episode again, within the sum of its limits: a limit for each step would be measured too."""
    task, responses = episode
    whole = replace(limits, step=limits.reset + len(responses) * limits.step)
    async with whole.bounded("step", f"the episode of {task.key}"):
        await _value(session.reset(task))
        for response in responses:
            await _step(session, response)


async def _step(session: Any, response: Response) -> Any:
    return await _value(session.step(response) if isinstance(response, str) else acting(session).act(response))


async def _value(answer: Any) -> Any:
    """Return the answer of a coroutine or of a plain function, which is called without a thread."""
    return await answer if inspect.isawaitable(answer) else answer
