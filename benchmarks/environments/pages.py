"""Episodes of one click in pages of Quartet's browser, with a picture before the click."""

import asyncio
import os
import time
from collections.abc import Iterator

import psutil
from msgspec import Struct

from benchmarks.processor_time import tree_seconds
from quartet import config
from quartet.env.miniwob.env import MiniWobPool, MiniWobSession
from quartet.env.miniwob.experts import expert_action
from quartet.types import Task

FAMILY = "click-test-2"
MEGABYTE = 1 << 20


class Pages(Struct, frozen=True, kw_only=True):
    """Measurements at one number of pages."""

    pages: int
    episodes_per_second: float
    browser_share: float
    """Share of the processors' time that the browser's processes used, those that have ended included."""
    browser_megabytes: float
    """Proportional set size of all of the browser's processes."""


async def play(pages: int, episodes: int) -> Pages:
    """Play `episodes` episodes in `pages` pages, after one in each to warm up."""
    pool = MiniWobPool(config.Env(name="miniwob", sessions=pages, screenshots=True, step_timeout_seconds=120.0))
    sessions = [await pool.acquire() for _ in range(pages)]
    first = sessions[0]
    assert isinstance(first, MiniWobSession)
    browser = psutil.Process(first.browser.pid)

    async def work(session: MiniWobSession, seeds: Iterator[int]) -> None:
        for seed in seeds:
            observation = await session.reset(Task(env="miniwob", family=FAMILY, seed=seed))
            await session.step(expert_action(FAMILY, observation))

    async def all_play(count: int) -> None:
        seeds = iter(range(count))
        await asyncio.gather(*(work(one, seeds) for one in sessions if isinstance(one, MiniWobSession)))

    try:
        await all_play(2 * pages)
        used, began = tree_seconds(browser), time.monotonic()
        await all_play(episodes)
        seconds = time.monotonic() - began
        share = (tree_seconds(browser) - used) / (seconds * (os.cpu_count() or 1))
        return Pages(
            pages=pages,
            episodes_per_second=round(episodes / seconds, 2),
            browser_share=round(share, 3),
            browser_megabytes=round(_megabytes(browser), 1),
        )
    finally:
        await pool.close()


def _megabytes(browser: psutil.Process) -> float:
    tree = [browser, *browser.children(recursive=True)]
    return sum(process.memory_full_info().pss for process in tree) / MEGABYTE
