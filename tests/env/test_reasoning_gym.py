"""Problems of reasoning-gym: scored by its own scorers, the same for every reset of a task."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quartet import config
from quartet.env import make_environment, make_pool
from quartet.env.base import Env
from quartet.env.check.run import check_environment
from quartet.env.environment.reasoning_gym import ReasoningGym
from quartet.env.guarded import GuardedEnv
from quartet.errors import ConfigError
from quartet.types import Task

reasoning_gym = pytest.importorskip("reasoning_gym", reason="`make test-adapters` installs it")
pytestmark = pytest.mark.campaign

FAMILIES = ["basic_arithmetic", "leg_counting", "countdown", "spell_backward"]
EXACT = ["basic_arithmetic", "leg_counting"]
"""The scorers of the other families give a small reward to some wrong answers, which `quartet env check` reports."""


@asynccontextmanager
async def made(**settings: Any) -> AsyncIterator[Env]:
    pool = make_pool(config.Env(name="reasoning_gym", **settings))
    session = await pool.acquire()
    try:
        yield GuardedEnv(session)
    finally:
        await pool.release(session, healthy=True)
        await pool.close()


def task(family: str, seed: int = 0) -> Task:
    return Task(env="reasoning_gym", family=family, seed=seed)


async def test_problems_and_their_scores_are_those_of_the_package():
    async with made() as session:
        for family in FAMILIES:
            original = reasoning_gym.create_dataset(family, seed=7, size=1)
            seen = await session.reset(task(family, 7))
            assert seen.messages[-1].content == original[0]["question"]
            right = await session.step(f" {original[0]['answer']}\n")
            assert right.reward == original.score_answer(original[0]["answer"], original[0]) == 1.0
            assert right.terminated and right.info["success"]


async def test_a_wrong_answer_scores_what_the_package_says():
    original = reasoning_gym.create_dataset("spell_backward", seed=1, size=1)
    async with made() as session:
        await session.reset(task("spell_backward", 1))
        result = await session.step("zzz")
    assert result.reward == original.score_answer("zzz", original[0]) < 1 and not result.info["success"]


async def test_an_answer_that_never_ends_scores_0_and_the_next_is_scored():
    original = reasoning_gym.create_dataset("countdown", seed=7, size=1)
    async with made(answer_seconds=1) as session:
        for answer in ("9**9**9", "9**9**9", "exit(11)"):
            await session.reset(task("countdown", 7))
            assert (await session.step(answer)).reward < 0.1
        await session.reset(task("countdown", 7))
        assert (await session.step(original[0]["answer"])).reward == 1.0


async def test_an_answer_that_the_scorer_evaluates_reaches_nothing_of_this_machine(tmp_path):
    hostile = f"[[__import__('pathlib').Path({str(tmp_path / 'made')!r}).write_text('x')]]"
    original = reasoning_gym.create_dataset("binary_matrix", seed=7, size=1)
    original.score_answer(hostile, original[0])
    (tmp_path / "made").unlink()  # the package evaluates it
    async with made() as session:
        await session.reset(task("binary_matrix", 7))
        assert (await session.step(hostile)).reward < 1.0
        assert not (tmp_path / "made").exists()
        await session.reset(task("binary_matrix", 7))
        assert (await session.step(original[0]["answer"])).reward == 1.0


async def test_settings_reach_the_generator_and_the_extraction():
    options = {"basic_arithmetic": {"min_terms": 2, "max_terms": 2}}
    async with made(options=options, answer="boxed", system="", sandbox="none") as session:
        (message,) = (await session.reset(task("basic_arithmetic", 5))).messages
        expected = reasoning_gym.create_dataset("basic_arithmetic", seed=5, size=1, min_terms=2, max_terms=2)[0]
        assert message.content == expected["question"]
        assert (await session.step(rf"so \boxed{{{expected['answer']}}}")).reward == 1.0


def problem(family: str, **settings: Any) -> object:
    environment = make_environment(config.Env(name="reasoning_gym", **settings))
    assert isinstance(environment, ReasoningGym)
    return environment.problem(task(family))


def test_an_unknown_data_set_suggests_the_nearest():
    with pytest.raises(ConfigError, match="leg_counting"):
        problem("leg_countin")


def test_options_of_an_unknown_data_set_suggest_the_nearest():
    with pytest.raises(ConfigError, match=r"(?s)'leg_countng'.*leg_counting"):
        problem("leg_counting", options={"leg_countng": {"max_animals": 5}})


async def test_a_reward_for_a_wrong_answer_is_reported(monkeypatch):
    monkeypatch.setattr("quartet.env.checks.cost.SECONDS", 0.05)
    env = config.Env(name="reasoning_gym", sessions=2, families=["spell_backward"])
    failed = [result.check for result in await check_environment(env, range(3), lambda _: None) if not result.passed]
    assert "rewards" in failed


async def test_it_passes_all_checks(monkeypatch):
    monkeypatch.setattr("quartet.env.checks.cost.SECONDS", 0.05)
    env = config.Env(name="reasoning_gym", sessions=2, families=EXACT)
    results = await check_environment(env, range(3), lambda _: None)
    assert [result for result in results if not result.passed] == []
