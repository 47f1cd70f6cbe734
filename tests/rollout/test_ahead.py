"""Turns of rollouts whose environments are reset ahead."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from quartet.env.environment.bandit import FAMILIES, BanditEnv
from quartet.errors import RecalledError
from quartet.rollout.ahead import Turnstile
from quartet.rollout.attempt import Attempt
from quartet.rollout.watch import Watch
from quartet.types import Purpose, RolloutLease, Task
from tests.waiting import until

TASK = Task(env="bandit", family=next(iter(FAMILIES)), seed=0)


def attempt(number: int) -> Attempt:
    lease = RolloutLease(
        rollout_id=number,
        group_id=1,
        attempt=1,
        index=number,
        task=TASK,
        max_turns=1,
        sampling_seed=0,
        temperature=1.0,
        purpose=Purpose.TRAIN,
        deadline=0.0,
    )
    return Attempt(lease=lease, models={}, watch=Watch(lambda: None, poll_seconds=60.0))


async def run(turnstile: Turnstile, running: Attempt, end: asyncio.Event) -> None:
    async with turnstile.turn(running, BanditEnv(Counter())):
        await end.wait()


@pytest.mark.parametrize("ticks", range(8))
async def test_a_rollout_that_is_cancelled_as_its_turn_comes_gives_it_back(ticks: int):
    """The event loop continues a waiting rollout some ticks after its turn was taken."""
    turnstile, waiting, end, never = Turnstile(1), attempt(2), asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(run(turnstile, attempt(1), end))
    second = asyncio.create_task(run(turnstile, waiting, never))
    await until(lambda: waiting.waits_for_turn)
    end.set()
    for _ in range(ticks):
        await asyncio.sleep(0)
    second.cancel()
    with suppress(asyncio.CancelledError):
        await second
    await first
    await asyncio.wait_for(run(turnstile, attempt(3), end), timeout=60.0)


async def test_a_recalled_rollout_stops_waiting_for_its_turn():
    turnstile, waiting, end = Turnstile(1), attempt(2), asyncio.Event()
    first = asyncio.create_task(run(turnstile, attempt(1), end))
    second = asyncio.create_task(run(turnstile, waiting, end))
    await until(lambda: waiting.waits_for_turn)
    await waiting.recall()
    with pytest.raises(RecalledError, match="waited for its turn"):
        await asyncio.wait_for(second, timeout=10.0)
    assert not first.done(), "no running rollout had to end"
    end.set()
    await first


@pytest.mark.parametrize("ticks", range(8))
async def test_a_rollout_that_is_recalled_as_its_turn_comes_has_it_or_gives_it_back(ticks: int):
    turnstile, waiting, end = Turnstile(1), attempt(2), asyncio.Event()
    first = asyncio.create_task(run(turnstile, attempt(1), end))
    second = asyncio.create_task(run(turnstile, waiting, end))
    await until(lambda: waiting.waits_for_turn)
    end.set()
    for _ in range(ticks):
        await asyncio.sleep(0)
    await waiting.recall()
    with suppress(RecalledError):
        await asyncio.wait_for(second, timeout=10.0)
    await first
    await asyncio.wait_for(run(turnstile, attempt(3), end), timeout=60.0)
