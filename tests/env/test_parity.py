"""Our driver against Farama's own Selenium environment: same task, same seed, same clicks -> same goal, same reward.

Both drive real browsers. Farama's page is loaded afresh for every episode too: reset in place, some tasks leak state.
"""

import asyncio
import random
import re
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from quartet import config
from quartet.env.miniwob.env import MiniWobPool, MiniWobSession
from quartet.env.miniwob.html import html_folder
from quartet.env.miniwob.suite import SUITES
from quartet.types import Observation, Task

pytestmark = [pytest.mark.browser, pytest.mark.campaign, pytest.mark.asyncio(loop_scope="module")]

FAMILIES = [family.name for family in SUITES["miniwob-24"]]
ONE_CLICK = ["click-button", "click-dialog", "focus-text-2", "click-test-2", "click-link", "click-dialog-2"]
ONLY_CLICKS = ["click-option", "click-checkboxes", "click-checkboxes-large", "click-collapsible"]
MAX_CLICKS = 5
MAX_ASKS = 30
# Where the page itself says which elements stand in which place, before any click.
PLACE = """(async () => {
  const before = JSON.stringify(quartet.boxOf(quartet.nodes.get(%d)))
  const point = await quartet.locate(%d)
  const scrolled = JSON.stringify(quartet.boxOf(quartet.nodes.get(%d))) !== before || (await quartet.view()).top
  return !scrolled && point.x ? point : null
})()"""


class Oracle:
    """Farama's environment, one browser for all families."""

    def __init__(self) -> None:
        from miniwob.environment import MiniWoBEnvironment

        self.env: Any = MiniWoBEnvironment(subdomain=FAMILIES[0], wait_ms=50, refresh_freq=1)

    def reset(self, family: str, seed: int) -> str:
        from miniwob.fields import get_field_extractor

        instance = self.env.instance
        instance.url = (html_folder() / f"{family}.html").as_uri()
        instance.field_extractor = get_field_extractor(family)
        observation, _ = self.env.reset(seed=seed, options={"record_screenshots": False})
        return observation["utterance"]

    def click(self, x: int, y: int) -> tuple[bool, float]:
        from miniwob.action import ActionTypes

        action = self.env.create_action(ActionTypes.CLICK_COORDS, coords=np.array([x, y], dtype=np.float32))
        self.env.step(action)
        self._wait_for_animations()
        return self.standing()

    def _wait_for_animations(self) -> None:
        """Farama's page slides sections open, and a click in the meantime hits what moves. Ours has no animations."""
        still_moving = "return window.jQuery ? jQuery(':animated').length : 0"
        for _ in range(MAX_ASKS):
            if not self.env.instance.driver.execute_script(still_moving):
                return
            time.sleep(0.1)

    def standing(self) -> tuple[bool, float]:
        metadata = self.env.instance.get_metadata()
        return metadata["done"], metadata["raw_reward"]


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("needs chromium and chromedriver on PATH")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINIWOB_CHROME_BINARY", chromium)
        patch.setenv("MINIWOB_CHROMEDRIVER", driver)
        oracle = Oracle()
        yield oracle
        oracle.env.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session() -> AsyncIterator[MiniWobSession]:
    pool = MiniWobPool(config.Env(name="miniwob", sessions=1, screenshots=False, step_timeout_seconds=120))
    env = await pool.acquire()
    assert isinstance(env, MiniWobSession)
    yield env
    await pool.close()


async def start(session: MiniWobSession, oracle: Oracle, family: str, seed: int) -> Observation:
    observation = await session.reset(Task(env="miniwob", family=family, seed=seed))
    assert observation.goal == oracle.reset(family, seed)
    return observation


async def click(session: MiniWobSession, oracle: Oracle, ref: int) -> tuple[Observation, bool, float] | None:
    """Click the middle of an element in both browsers; None when that would need scrolling."""
    place = await session.page.ask(PLACE % (ref, ref, ref))
    if place is None:
        return None
    x, y = round(place["x"]), round(place["y"])
    result = await session.step(f"click ({x},{y})")
    ours = result.terminated, result.info["raw_reward"]
    theirs = oracle.click(x, y)
    # Selenium may return before its page has handled the click.
    for _ in range(MAX_ASKS):
        if theirs == ours:
            break
        await asyncio.sleep(0.1)
        theirs = oracle.standing()
    assert ours == theirs, f"after a click at ({x},{y})"
    return result.observation, *ours


def refs(observation: Observation, pattern: str = "") -> list[int]:
    lines = [line for line in observation.text.splitlines() if re.search(pattern, line)]
    return [int(re.findall(r"\[(\d+)\]", line)[0]) for line in lines]


@pytest.mark.parametrize("family", FAMILIES)
async def test_same_clicks_same_reward(session: MiniWobSession, oracle: Oracle, family: str) -> None:
    compared = 0
    for seed in (11, 1_000_012):
        observation = await start(session, oracle, family, seed)
        dice, done = random.Random(seed), False
        for _ in range(MAX_CLICKS):
            outcome = await click(session, oracle, dice.choice(refs(observation)))
            if outcome is not None:
                observation, done, _ = outcome
                compared += 1
            if done:
                break
        if not done and (submit := refs(observation, r"^button (Submit|Login|OK|Search|Go!)")):
            compared += await click(session, oracle, submit[-1]) is not None
    assert compared > 0, "every click was left out of the comparison that `click` makes"


@pytest.mark.parametrize("family", ONE_CLICK)
async def test_every_first_click(session: MiniWobSession, oracle: Oracle, family: str) -> None:
    rewards = []
    for ref in refs(await start(session, oracle, family, 3))[:8]:
        await start(session, oracle, family, 3)
        outcome = await click(session, oracle, ref)
        rewards.append(outcome and outcome[2])
    assert 1 in rewards


@pytest.mark.parametrize("family", ONLY_CLICKS)
async def test_what_clicks_alone_solve(session: MiniWobSession, oracle: Oracle, family: str) -> None:
    observation = await start(session, oracle, family, 4)
    named = re.findall(r"[^\s,]+", observation.goal.removeprefix("Select "))
    labels = [line.split(" [")[0].split(maxsplit=1)[1] for line in observation.text.splitlines()]
    wanted = [ref for ref, label in zip(refs(observation), labels, strict=True) if label in named]
    outcome = None
    for ref in [*(wanted or refs(observation, "^tab")), *refs(observation, "^button Submit")]:
        outcome = await click(session, oracle, ref) or outcome
    assert outcome is not None
    assert outcome[1:] == (True, 1)
