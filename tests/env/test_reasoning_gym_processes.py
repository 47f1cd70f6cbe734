"""Answers of reasoning-gym that are scored at the same time; a package of the test is in place of the real one."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from quartet import config
from quartet.env import make_pool
from quartet.env.guarded import GuardedPool
from quartet.types import Task

PACKAGE = """
import time

class Made(list):
    def score_answer(self, answer, entry):
        if answer == "sleep":
            time.sleep(60)
        return float(answer == entry["answer"])

def create_dataset(family, seed, size):
    return Made([{"question": "Which seed?", "answer": str(seed)}])
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the package on the path of this process and of its children."""
    folder = tmp_path / "reasoning_gym"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)
    (folder / "factory.py").write_text("DATASETS = {'seeds': None}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with mock.patch.dict(sys.modules):
        for name in [name for name in sys.modules if name.partition(".")[0] == "reasoning_gym"]:
            del sys.modules[name]
        yield


async def test_an_answer_that_takes_long_holds_up_one_of_the_processes_only() -> None:
    settings = {"processes": 2, "sandbox": "none", "answer_seconds": 20}
    pool = GuardedPool(make_pool(config.Env(name="reasoning_gym", sessions=2, **settings)))
    slow, other = await pool.acquire(), await pool.acquire()
    for session in (slow, other):
        await session.reset(Task(env="reasoning_gym", family="seeds", seed=7))
    waiting = asyncio.create_task(slow.step("sleep"))
    await asyncio.sleep(0.2)
    assert (await asyncio.wait_for(other.step("7"), 30)).reward == 1.0
    assert not waiting.done()
    waiting.cancel()
    await pool.close()
