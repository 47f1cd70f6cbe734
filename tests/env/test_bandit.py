"""The two-armed bandit, and the registry that finds it."""

import pytest

from quartet import config
from quartet.env import make_pool, suite_families
from quartet.env.session_pool import SessionPool
from quartet.errors import ConfigError, EnvError
from quartet.types import Task

POOL = config.Env(name="bandit", sessions=2)


def task(family="named", seed=0, **params) -> Task:
    return Task(env="bandit", family=family, seed=seed, params=params)


async def test_the_goal_of_a_named_task_tells_the_right_arm():
    env = await make_pool(POOL).acquire()
    seen = set()
    for seed in range(20):
        observation = await env.reset(task(seed=seed))
        assert observation.text == "button left [1]\nbutton right [2]"
        right = 1 if "left" in observation.goal else 2
        seen.add(observation.goal)
        for ref in (1, 2):
            assert (await env.reset(task(seed=seed))).goal == observation.goal
            result = await env.step(f"a thought\nclick [{ref}]")
            assert result.terminated
            assert (result.reward, result.info) == (float(ref == right), {"success": ref == right})
    assert seen == {"Pull the left arm.", "Pull the right arm."}


async def test_in_a_fixed_task_the_left_arm_is_right_and_the_goal_does_not_say_so():
    env = await make_pool(POOL).acquire()
    for seed in range(5):
        assert (await env.reset(task("fixed", seed))).goal == "Pull an arm."
        assert (await env.step("click left [1]")).reward == 1.0


async def test_several_pulls_are_rewarded_together_and_done_ends_early():
    env = await make_pool(POOL).acquire()
    await env.reset(task("fixed", turns=4))
    results = [await env.step(action) for action in ("click left [1]", "click right [2]", "click [1]", "click [1]")]
    assert [result.terminated for result in results] == [False, False, False, True]
    assert [result.reward for result in results] == [0.0, 0.0, 0.0, 0.75]
    assert results[-1].info == {"success": False}
    await env.reset(task("fixed", turns=4))
    await env.step("click left [1]")
    stopped = await env.step("done")
    assert (stopped.terminated, stopped.reward) == (True, 0.25)


@pytest.mark.parametrize(
    ("action", "error"),
    [("hello", "not an action"), ("click up [9]", "no element [9]"), ("key Enter", "only click and done work here")],
)
async def test_impossible_action_is_a_turn_with_an_error(action, error):
    env = await make_pool(POOL).acquire()
    await env.reset(task())
    result = await env.step(action)
    assert (result.observation.error, result.terminated, result.reward) == (error, False, 0.0)


async def failures(episodes: int) -> list[bool]:
    """Which episodes of a fresh pool fail at reset, for the same flaky task."""
    env, failed = await make_pool(POOL).acquire(), []
    for _ in range(episodes):
        try:
            await env.reset(task(seed=3, fail_rate=0.5))
            failed.append(False)
        except EnvError:
            failed.append(True)
    return failed


async def test_failures_repeat_with_the_seed_but_a_retry_may_succeed():
    first = await failures(20)
    assert first == await failures(20)
    assert {True, False} == set(first)


async def test_a_step_before_a_reset_and_an_unknown_family_are_errors():
    env = await make_pool(POOL).acquire()
    with pytest.raises(EnvError, match="before its first reset"):
        await env.step("click [1]")
    with pytest.raises(ConfigError, match="Did you mean 'named'"):
        await env.reset(task("nmaed"))


def test_the_registry_suggests_the_nearest_name():
    assert isinstance(make_pool(POOL), SessionPool)
    assert suite_families(POOL) == ["named", "fixed"]
    assert suite_families(config.Env(name="bandit", families=["fixed"])) == ["fixed"]
    with pytest.raises(ConfigError, match="Did you mean 'bandit'"):
        make_pool(config.Env(name="bandid"))
    with pytest.raises(ConfigError, match=r"unknown task family 'fxed'.*\n.*Did you mean 'fixed'"):
        suite_families(config.Env(name="bandit", families=["fxed"]))
    with pytest.raises(ConfigError, match=r"env\.families: fixed appears twice\n  -> list each family once"):
        suite_families(config.Env(name="bandit", families=["fixed", "named", "fixed"]))


async def test_a_session_that_cannot_be_made_takes_no_place():
    def fail():
        raise EnvError("no display")

    pool = SessionPool(fail, sessions=1)
    for _ in range(2):
        with pytest.raises(EnvError, match="no display"):
            await pool.acquire()
