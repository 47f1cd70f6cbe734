"""MiniWoB++ tasks in pages of one Chromium: the pool of sessions, and the session.

Every episode runs in a new sandboxed frame: some tasks leak state into the next episode, and a hostile page could
change its reward. The reward is MiniWoB++'s raw reward, without time decay; negative ones become 0. An episode is
successful if the raw reward is exactly 1; on the few pages that grade a place, if it reaches the family's
`success_reward`.
"""

import asyncio
import json
import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from quartet import config
from quartet.actions.taken import canonical
from quartet.env.acting_session import ActingSession
from quartet.env.base import Env
from quartet.env.browser import Browser
from quartet.env.cdp import CALL_TIMEOUT_SECONDS, PageFaultError
from quartet.env.deadlines import Deadlines
from quartet.env.hands import HARNESS, Hands, watching
from quartet.env.miniwob.html import html_folder, task_page
from quartet.env.miniwob.instructions import Instruction
from quartet.env.page import Page
from quartet.env.performing import ActionFailedError, perform_all
from quartet.env.reward import number
from quartet.errors import EnvError
from quartet.types import (
    GENERATED,
    Action,
    Done,
    Infeasible,
    Observation,
    Outcome,
    Picture,
    StepResult,
    TakenAction,
    Task,
)

LOG = logging.getLogger(__name__)
WIDTH, HEIGHT = 160, 210
"""Pixels of the picture: the task without the page's display of time and reward."""
CLEAR_TIMEOUT_SECONDS = 5.0
"""Maximum time for which the page of the previous episode may block its window, after which the window is replaced."""

RESETS_PER_COLLECTION = 100
"""Resets of a page after which its garbage is collected. V8 keeps the objects of past episodes until its heap is large,
some 350 MB per page of all families; a collection took 0.1 s on a busy machine."""

LONGEST_FAULT = 200
"""Maximum characters of a page's error in a message."""
LEFT = {"text": "", "done": True, "reward": 0.0, "reason": "left the task page"}
"""State of a task whose page was left by an action."""

STAGE, EPISODE, JUDGE = (
    (files("quartet.env.miniwob") / name).read_text() for name in ("stage.js", "episode.js", "judge.js")
)


SOLVED = 1.0
"""Raw reward of a success in families without a `success_reward` of their own."""


class MiniWobSession(ActingSession):
    """Session in one page; plays one episode at a time."""

    def __init__(
        self, browser: Browser, page: Page, settings: config.Env, success_rewards: Mapping[str, float], elements: bool
    ) -> None:
        self.browser = browser
        self.page = page
        self._hands = Hands(page)
        self._settings, self._success_rewards, self._elements = settings, success_rewards, elements
        self._deadlines = Deadlines.of(settings)
        self._success_reward = SOLVED
        self._sent: set[str] = set()
        self._last = Observation(goal="", text="")
        self._over, self._acted = True, False
        self._resets = 0
        self._instruction: Instruction | None = None

    @property
    def healthy(self) -> bool:
        return self.browser.alive and not self.page.dead

    async def reset(self, task: Task) -> Observation:
        """Start the episode of a task. The family names the task page; the seed is passed to `Math.seedrandom`."""
        page = task_page(task.family)
        async with self._deadlines.bounded("reset", f"reset of {task.key}"):
            await self._show(task.family, {"watch": watching(JUDGE), task.family: page.html, **page.parts})
            await self.page.isolate(in_frame=True)
            self._hands = Hands(self.page)
            self.page.center_pointer()
            self._resets += 1
            if self._resets % RESETS_PER_COLLECTION == 0:
                await self.page.collect_garbage()
            # Sent together. The first text is the same in every episode, so that V8 compiles it once.
            _, state = await asyncio.gather(
                self._ask(f"{HARNESS};{EPISODE};0"), self._ask(f"quartet.start({task.seed})")
            )
            if state is None:
                raise EnvError(f"the page of {task.key} went away while it started")
            if state["unreadable"]:
                raise EnvError(f"the page of {task.key} cannot be read: {state['unreadable']}")
            self._last = await self._observe(state, error="")
        self._over = self._acted = False
        self._success_reward = self._success_rewards.get(task.family, SOLVED)
        self._instruction = Instruction.drawn(task, self._last) if GENERATED in task.params else None
        return self._instruction.shown(self._last) if self._instruction else self._last

    async def _turn(self, actions: Sequence[Action], *unreadable: TakenAction) -> StepResult:
        """Perform actions in order. `info` has `success`, `raw_reward` (-1..1) and the page's `reason`.

        If, after the first action, the page was left or its own scripts made it unreadable, the episode ends without
        success; otherwise a policy could turn a failure into an error. Raise `EnvError` for any other failure of the
        page or the browser.
        """
        if self._over:
            raise RuntimeError("step was called after the end of the episode: call reset first")
        if self.page.left and not self._acted:
            raise EnvError("the task page went away by itself, before the first action")
        self._acted = True
        performed = ", ".join(map(canonical, actions))
        async with self._deadlines.bounded("step", f"step {performed[:40]!r}"):
            taken = [*await perform_all(actions, self, self._is_over, ended=self.page.left), *unreadable]
            state = await self._stands("; ".join(one.error for one in taken if one.error))
        gave_up = any(
            isinstance(one.action, Done | Infeasible) and one.outcome in (Outcome.DONE, Outcome.INFEASIBLE)
            for one in taken
        )
        self._over = gave_up or state["done"]
        raw = number(state["reward"])
        reason = "gave up" if gave_up else str(state["reason"])
        result = StepResult(
            observation=self._last,
            reward=raw if math.isnan(raw) else min(max(raw, 0.0), 1.0),
            terminated=self._over,
            info={"success": self._success_reward <= raw <= SOLVED, "raw_reward": raw, "reason": reason},
            actions=taken,
        )
        if self._instruction is None:
            return result
        judged = self._instruction.judged(result)
        self._over = judged.terminated
        return judged

    async def close(self) -> None:
        await self.page.close()

    async def _show(self, family: str, texts: dict[str, str]) -> None:
        """Show a new frame for the family. Replace a window that the previous episode blocked, crashed or flooded."""
        try:
            await self._show_in_window(family, texts, CLEAR_TIMEOUT_SECONDS)
        except EnvError:
            await self.page.close()
            self.page, self._sent = await open_stage(self.browser), set()
            await self._show_in_window(family, texts, CALL_TIMEOUT_SECONDS)

    async def _show_in_window(self, family: str, texts: dict[str, str], timeout_seconds: float) -> None:
        """Send the texts that the window does not have yet, and show the family's page."""
        new = {name: text for name, text in texts.items() if name not in self._sent}
        show = f"stage.show({json.dumps(family)}, {json.dumps(new)})"
        await self.page.evaluate(show, timeout_seconds=timeout_seconds)
        self._sent |= new.keys()

    async def perform(self, action: Action) -> list[tuple[float, float]]:
        """Perform one action and return its points; none if it left the page, as the observation then shows."""
        try:
            return await self._hands.perform(action)
        except PageFaultError as fault:
            raise ActionFailedError(f"the page failed: {_first_line(fault)}") from fault
        except EnvError:
            if not await self.page.was_left():
                raise
            return []

    async def release(self) -> None:
        """Release the keys and the mouse button that are down."""
        try:
            await self._hands.release()
        except EnvError:
            if not await self.page.was_left():
                raise

    async def _is_over(self, action: Action) -> bool:
        """Return whether no further action of the turn can be performed."""
        if isinstance(action, Done | Infeasible):
            return True
        state = await self._ask("quartet.state()")
        return state is None or bool(state["done"])

    async def _stands(self, error: str) -> dict[str, Any]:
        """Return the state of the task after a turn's actions, and store the observation of this state."""
        try:
            state = await self._ask("quartet.state()") or {**LEFT, "goal": self._last.goal}
            if state.get("unreadable") and not state["done"]:
                raise PageFaultError(state["unreadable"])
            self._last = await self._observe(state, error)
        except PageFaultError as fault:
            state = {**LEFT, "goal": self._last.goal, "reason": f"broke the task page: {_first_line(fault)}"}
            LOG.warning("%s", state["reason"])
            self._last = await self._observe(state, error)
        return state

    async def _ask(self, expression: str) -> dict[str, Any] | None:
        """Return the harness's answer, or None if the task page is gone."""
        try:
            return await self.page.ask(expression)
        except PageFaultError:
            raise
        except EnvError:
            if not await self.page.was_left():
                raise
            return None

    async def _observe(self, state: dict[str, Any], error: str) -> Observation:
        pictures = self._last.pictures
        if self._settings.screenshots and not state["done"]:  # The page is covered once the episode is over.
            pictures = [Picture(data=await self.page.screenshot())]
        text = state["text"] if self._elements else ""
        return Observation(goal=state["goal"], text=text, error=error, pictures=pictures)


def _first_line(fault: PageFaultError) -> str:
    return fault.what.splitlines()[0][:LONGEST_FAULT]


async def open_stage(browser: Browser) -> Page:
    """Return a window in which no episode has run yet."""
    page = await browser.new_page("about:blank", width=WIDTH, height=HEIGHT)
    try:
        await page.evaluate(STAGE)
    except (EnvError, asyncio.CancelledError):  # the page belongs to no session yet
        await page.close()
        raise
    return page


class MiniWobPool:
    """Pool of up to `settings.sessions` pages in one Chromium. The browser is started on first use, and again after it
    died."""

    def __init__(
        self,
        settings: config.Env,
        success_rewards: Mapping[str, float] = MappingProxyType({}),
        *,
        elements: bool = True,
    ) -> None:
        """`success_rewards` are the lowest raw rewards of a success in families where it is not 1. Without `elements`
        observations have no lines of elements, so that only the picture shows the page."""
        html_folder()  # Fail before the first rollout if the package is missing.
        self._settings, self._success_rewards, self._elements = settings, success_rewards, elements
        self._slots = asyncio.Semaphore(settings.sessions)
        self._starting = asyncio.Lock()
        self._browser: Browser | None = None
        self._idle: list[MiniWobSession] = []

    async def acquire(self) -> Env:
        """Return a free session; wait if all are in use.

        Raise `EnvError` if the page cannot be opened, `SetupError` if there is no browser.
        """
        await self._slots.acquire()
        try:
            browser = await self._living_browser()
            while self._idle:
                session = self._idle.pop()
                if session.healthy:
                    return session
                with suppress(EnvError):  # its target would stay in the browser
                    await session.close()
            stage = await open_stage(browser)
            return MiniWobSession(browser, stage, self._settings, self._success_rewards, self._elements)
        except BaseException:
            self._slots.release()
            raise

    async def release(self, env: Env, *, healthy: bool) -> None:
        """Release a session. An unhealthy session is closed; a later `acquire` opens a new page."""
        assert isinstance(env, MiniWobSession)
        try:
            if healthy and env.healthy:
                self._idle.append(env)
            else:
                await env.close()
        finally:
            self._slots.release()

    async def close(self) -> None:
        """End the browser with all its pages; safe to call twice."""
        self._idle.clear()
        if self._browser is not None:
            await self._browser.close()
            self._browser = None

    async def _living_browser(self) -> Browser:
        async with self._starting:
            if self._browser is not None and not self._browser.alive:
                await self.close()
            if self._browser is None:
                self._browser = await Browser.start()
            return self._browser
