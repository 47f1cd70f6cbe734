"""Problems of reasoning-gym: scored by its own scorers, the same for every reset of a task."""

import pytest

from quartet import config
from quartet.env import make_environment
from quartet.env.check.run import check_environment
from quartet.env.environment.reasoning_gym import Problem
from quartet.errors import ConfigError
from quartet.types import Task

reasoning_gym = pytest.importorskip("reasoning_gym", reason="`make test-adapters` installs it")
pytestmark = pytest.mark.campaign

FAMILIES = ["basic_arithmetic", "leg_counting", "countdown", "spell_backward"]
EXACT = ["basic_arithmetic", "leg_counting"]
"""The scorers of the other families give a small reward to some wrong answers, which `quartet env check` reports."""


def made(**settings: object) -> Problem:
    session = make_environment(config.Env(name="reasoning_gym", **settings)).session()
    assert isinstance(session, Problem)
    return session


@pytest.mark.parametrize("family", FAMILIES)
def test_a_problem_and_its_score_are_those_of_the_package(family):
    original = reasoning_gym.create_dataset(family, seed=7, size=1)
    session = made()
    seen = session.reset(Task(env="reasoning_gym", family=family, seed=7))
    assert seen.messages[-1].content == original[0]["question"]
    right = session.step(f" {original[0]['answer']}\n")
    assert right.reward == original.score_answer(original[0]["answer"], original[0]) == 1.0
    assert right.terminated and right.info["success"]


def test_a_wrong_answer_scores_what_the_package_says():
    original = reasoning_gym.create_dataset("spell_backward", seed=1, size=1)
    session = made()
    session.reset(Task(env="reasoning_gym", family="spell_backward", seed=1))
    result = session.step("zzz")
    assert result.reward == original.score_answer("zzz", original[0]) < 1 and not result.info["success"]


def test_settings_reach_the_generator_and_the_extraction():
    session = made(options={"basic_arithmetic": {"min_terms": 2, "max_terms": 2}}, answer="boxed", system="")
    (message,) = session.reset(Task(env="reasoning_gym", family="basic_arithmetic", seed=5)).messages
    expected = reasoning_gym.create_dataset("basic_arithmetic", seed=5, size=1, min_terms=2, max_terms=2)[0]
    assert message.content == expected["question"]
    assert session.step(rf"so \boxed{{{expected['answer']}}}").reward == 1.0


def test_an_unknown_data_set_suggests_the_nearest():
    with pytest.raises(ConfigError, match="leg_counting"):
        made().reset(Task(env="reasoning_gym", family="leg_countin", seed=0))


def test_options_of_an_unknown_data_set_suggest_the_nearest():
    session = made(options={"leg_countng": {"max_animals": 5}})
    with pytest.raises(ConfigError, match=r"(?s)'leg_countng'.*leg_counting"):
        session.reset(Task(env="reasoning_gym", family="leg_counting", seed=0))


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
