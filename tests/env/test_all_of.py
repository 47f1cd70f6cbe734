"""Concurrent calls: a failure cancels the others, and is raised as it is."""

import asyncio

import pytest

from quartet.env.all_of import all_of
from quartet.errors import RewardError


async def test_results_are_in_the_order_of_the_calls():
    assert await all_of(asyncio.sleep(0.02, "slow"), asyncio.sleep(0, "fast")) == ["slow", "fast"]
    assert await all_of() == []


async def test_the_first_error_is_raised_once_the_other_calls_have_ended():
    ended: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise RewardError("the first") from ValueError("its cause")

    async def wait() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            ended.append("wait")

    with pytest.raises(RewardError, match="the first") as raised:
        await all_of(wait(), fail())
    assert ended == ["wait"] and isinstance(raised.value.__cause__, ValueError)
