"""MiniWoB++ sessions: what the policy sees, how episodes end, and what survives which failure."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from quartet import config
from quartet.env.miniwob import env as miniwob
from quartet.env.miniwob.env import MiniWobPool, MiniWobSession
from quartet.env.miniwob.suite import SUITES
from quartet.errors import EnvError
from quartet.types import Observation, StepResult, Task
from tests.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

FAMILIES = [family.name for family in SUITES["miniwob-24"]]
LINE = re.compile(r"^(button|link|input|checkbox|radio|tab|select|option|textarea|image|text) \S.* \[\d+\]( |$)")


def task(name: str, seed: int = 0) -> Task:
    return Task(env="miniwob", family=name, seed=seed)


def settings(**changes: object) -> config.Env:
    return config.Env(name="miniwob", **changes)  # type: ignore[arg-type]


def ref(observation: Observation, start: str) -> int:
    return int(
        next(re.findall(r"\[(\d+)\]", line)[0] for line in observation.text.splitlines() if line.startswith(start))
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[MiniWobPool]:
    pool = MiniWobPool(settings(sessions=2))
    yield pool
    await pool.close()


@pytest_asyncio.fixture(loop_scope="module")
async def session(pool: MiniWobPool) -> AsyncIterator[MiniWobSession]:
    env = await pool.acquire()
    assert isinstance(env, MiniWobSession)
    yield env
    await pool.release(env, healthy=True)


async def test_a_stage_that_cannot_be_prepared_leaves_no_page(session, monkeypatch):
    async def pages() -> set[str]:
        answer = await session.browser.connection.browser.call("Target.getTargets")
        return {target["targetId"] for target in answer["targetInfos"] if target["type"] == "page"}

    before = await pages()
    monkeypatch.setattr(miniwob, "STAGE", "no_such_name.prepare()")
    with pytest.raises(EnvError, match="no_such_name"):
        await miniwob.open_stage(session.browser)
    for _ in range(100):
        if await pages() == before:
            break
        await asyncio.sleep(0.05)
    assert await pages() == before


async def play(session: MiniWobSession, *actions: str) -> StepResult:
    """The result of the last action; the earlier ones must not end the episode."""
    *before, last = actions
    for action in before:
        assert not (await session.step(action)).terminated
    return await session.step(last)


@pytest.mark.parametrize("name", FAMILIES)
async def test_the_same_seed_is_the_same_task(session: MiniWobSession, name: str) -> None:
    first = await session.reset(task(name, 7))
    await session.reset(task(name, 8))
    again = await session.reset(task(name, 7))
    assert (first.goal, first.text) == (again.goal, again.text)
    assert all(LINE.match(line) for line in first.text.splitlines())
    assert not re.search(r"reward|time left|countdown|START", first.text)
    assert first.goal not in first.text


async def test_every_episode_starts_with_its_upper_left_corner_in_the_picture(session: MiniWobSession) -> None:
    await session.reset(task("enter-text"))
    await session.step("scroll down")
    corner = "quartet.view().then(({ left, top }) => [left, top])"
    assert (await session.page.ask(corner))[1] < 0
    await session.step("move (5,5)")
    for name in ("click-dialog", "click-test-2"):  # The dialog focuses its button before it is in its place.
        await session.reset(task(name, 3))
        assert await session.page.ask(corner) == [0, 0]
        assert session.page.pointer == (80, 105)  # for gestures without a place


async def test_an_episode_that_is_solved(session: MiniWobSession) -> None:
    start = await session.reset(task("login-user", 3))
    user, password = re.findall(r'"(.*?)"', start.goal)
    before_login = [f'type Username [1] "{user}"', f'type Password [2] "{password}"']
    await play(session, *before_login)
    result = await session.step("click Login [3]")
    assert (result.terminated, result.reward, result.info["success"], result.info["raw_reward"]) == (True, 1, True, 1)
    (picture,) = result.observation.pictures
    assert picture.data[:3] == b"\xff\xd8\xff"
    with pytest.raises(RuntimeError, match="reset"):
        await session.step("click [1]")


async def test_an_episode_that_is_failed_and_one_that_is_given_up(session: MiniWobSession) -> None:
    await session.reset(task("enter-text", 3))
    result = await session.step("click Submit [2]")
    assert (result.terminated, result.reward, result.info["raw_reward"]) == (True, 0, -1)
    assert not result.info["success"]
    await session.reset(task("enter-text", 3))
    result = await session.step("done")
    assert (result.terminated, result.reward, result.info["success"]) == (True, 0, False)


async def test_a_partial_reward_is_no_success(session: MiniWobSession) -> None:
    start = await session.reset(task("click-checkboxes-large", 0))
    wanted = start.goal.removeprefix("Select ").removesuffix(" and click Submit.").split(", ")
    for name in wanted[:-1]:
        await session.step(f"click {name} [{ref(start, f'checkbox {name} ')}]")
    result = await session.step(f"click [{ref(start, 'button Submit')}]")
    assert 0 < result.reward < 1
    assert not result.info["success"]


@pytest.mark.parametrize(
    ("response", "error"),
    [("hm, let me see", "not an action"), ("click [99]", "no element [99]"), ('select [1] "x"', "no list [1]")],
)
async def test_a_bad_action_is_an_observation(session: MiniWobSession, response: str, error: str) -> None:
    start = await session.reset(task("enter-text"))
    result = await session.step(response)
    assert (result.observation.error, result.terminated) == (error, False)
    assert result.observation.text == start.text


async def test_elements_that_appear_can_be_read_and_used(session: MiniWobSession) -> None:
    start = await session.reset(task("email-inbox-forward", 5))
    sender, receiver = re.findall(r"email by (\w+) and forward that email to (\w+)", start.goal)[0]
    opened = (await session.step(f"click [{ref(start, f'text {sender}')}]")).observation
    form = (await session.step(f"click [{ref(opened, 'text Forward')}]")).observation
    await session.step(f'type to [{ref(form, "input to")}] "{receiver}"')
    result = await session.step(f"click send forward [{ref(form, 'image send forward')}]")
    assert result.info["success"]


async def test_a_popup_covers_what_lies_below(session: MiniWobSession) -> None:
    await session.reset(task("login-user-popup", 1))
    shown = (await session.step('type Username [1] "x"')).observation
    assert "input Username [1] disabled" in shown.text
    assert (await session.step('type Username [1] "x"')).observation.error == "covered [1]"
    closed = (await session.step(f"click Cancel [{ref(shown, 'button Cancel')}]")).observation
    assert "disabled" not in closed.text


async def test_the_garbage_of_a_page_is_collected_every_few_resets(
    session: MiniWobSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(miniwob, "RESETS_PER_COLLECTION", 3)
    collect, resets, collections = session.page.collect_garbage, list[int](), list[int]()

    async def counted() -> None:
        await collect()
        collections.append(resets[-1])

    monkeypatch.setattr(session.page, "collect_garbage", counted)
    for number in range(6):
        resets.append(number)
        await session.reset(task("click-test-2"))
    first, second = collections
    assert second == first + 3


async def test_without_screenshots_none_is_taken() -> None:
    pool = MiniWobPool(settings(sessions=1, screenshots=False))
    env = await pool.acquire()
    assert (await env.reset(task("click-test-2"))).pictures == []
    await pool.close()


async def test_acquire_waits_for_a_free_session(pool: MiniWobPool) -> None:
    one, two = await pool.acquire(), await pool.acquire()
    waiting = asyncio.ensure_future(pool.acquire())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await pool.release(one, healthy=True)
    assert await waiting is one
    await pool.release(one, healthy=False)
    await pool.release(two, healthy=True)
    assert await pool.acquire() is not one
    await pool.release(two, healthy=True)


async def test_a_crashed_page_is_replaced(pool: MiniWobPool) -> None:
    env = await pool.acquire()
    assert isinstance(env, MiniWobSession)
    await env.reset(task("enter-text"))
    await env.page.crash()
    with pytest.raises(EnvError, match="crashed"):
        await env.step("click [1]")
    await pool.release(env, healthy=False)
    other = await pool.acquire()
    assert (await other.reset(task("enter-text"))).goal
    await pool.release(other, healthy=True)


async def test_a_page_that_crashes_between_two_episodes_is_closed(pool: MiniWobPool) -> None:
    env = await pool.acquire()
    assert isinstance(env, MiniWobSession)

    async def windows() -> int:
        return len((await env.browser.connection.browser.call("Target.getTargets"))["targetInfos"])

    before = await windows()
    await pool.release(env, healthy=True)
    await env.page.crash()
    await until(lambda: not env.healthy)
    other = await pool.acquire()
    assert other is not env and await windows() == before
    await pool.release(other, healthy=True)


async def test_a_killed_browser_is_started_again() -> None:
    pool = MiniWobPool(settings(sessions=2))
    sessions = [await pool.acquire(), await pool.acquire()]
    for env in sessions:
        await env.reset(task("enter-text"))
    first = sessions[0]
    assert isinstance(first, MiniWobSession)
    os.kill(first.browser.pid, signal.SIGKILL)
    for env in sessions:
        with pytest.raises(EnvError, match="died"):
            await env.step("click [1]")
        await pool.release(env, healthy=True)  # The pool does not believe it.
    again = await pool.acquire()
    assert (await again.reset(task("enter-text"))).goal
    await pool.close()


async def test_a_reset_and_a_step_have_limits_of_their_own() -> None:
    """Many times, since the browser's first answer often arrives together with the limit."""
    pool = MiniWobPool(settings(sessions=1, step_timeout_seconds=0.001, reset_timeout_seconds=60.0))
    for seed in range(12):
        env = await pool.acquire()
        assert isinstance(env, MiniWobSession)
        assert (await env.reset(task("enter-text", seed))).goal
        await env.page.ask("quartet.settle = () => new Promise(() => 0)")  # A fast browser answers within 1 ms.
        with pytest.raises(EnvError, match=r"(?s)longer than 0\.001 s.*env\.step_timeout_seconds"):
            await env.step("click [1]")
        await pool.release(env, healthy=False)
    await pool.close()


async def test_a_step_that_takes_too_long_is_an_env_error() -> None:
    pool = MiniWobPool(settings(sessions=1, step_timeout_seconds=5.0))
    env = await pool.acquire()
    assert isinstance(env, MiniWobSession)
    await env.reset(task("enter-text"))
    await env.page.ask("quartet.settle = () => new Promise(() => 0)")
    with pytest.raises(EnvError, match=r"(?s)took longer than 5 s.*env\.step_timeout_seconds"):
        await env.step("click [1]")
    await pool.close()
