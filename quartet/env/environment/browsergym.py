"""Web tasks of BrowserGym: accessibility trees, its own actions, and the Chromium of this machine."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from quartet.config.section import Positive, Section
from quartet.env.base import Env, Environment
from quartet.env.browser import find_chromium
from quartet.env.extra import import_extra
from quartet.env.reach import Reach
from quartet.errors import ConfigError, nearest
from quartet.types import Observation, Outcome, StepResult, TakenAction, Task, Text

T = TypeVar("T")
EXTRA = "browsergym"
SUITES = ("MINIWOB_URL", "SNOW_INSTANCE_URL", "VWA_", "WA_")
"""Beginnings of the environment variables that give BrowserGym the addresses of a suite's pages."""
_THREAD = ThreadPoolExecutor(1, "browsergym")
"""The only thread that may use BrowserGym's one connection to Playwright: sessions of a host take turns in it."""


class BrowserGym(Environment):
    """Tasks of BrowserGym by their ids; set `env.hosts` for tasks side by side, since a host steps one at a time."""

    class Settings(Section):
        ids: list[str]
        """Ids of tasks, for example `browsergym/openended` or `browsergym/miniwob.click-test`, whose package
        `browsergym-miniwob` must be installed."""
        options: dict[str, Any] = {}
        """Keyword arguments of the environment, for example `{task_kwargs = {start_url = "http://127.0.0.1:8000"}}`."""
        turn_limit: Positive | None = None
        """Turn limit of every family in evaluations; training applies it with `control.horizon = "suite"`."""
        reachable: list[str] = []
        """Further addresses that pages and the action `goto` may reach, such as `127.0.0.1:8000` or `*.example.com`;
        `*` for all, those of this machine included. The page `start_url` of the task, and the addresses that the
        environment variables of MiniWoB++, WebArena, VisualWebArena and WorkArena name, are always reachable."""

    settings: Settings
    extra = EXTRA
    needs_browser = True
    grammar = "an action such as `click('12')`"
    instructions = """Act on the page with one action: click('12'), fill('12', 'text'), select_option('12', 'text'), \
press('12', 'Enter'), hover('12'), scroll(0, 200), goto('http://...'), go_back(), noop(), send_msg_to_user('answer'), \
report_infeasible('reason'). Numbers in brackets name the elements."""
    source = "Le Sellier De Chezelles et al. 2024, The BrowserGym Ecosystem for Web Agent Research"
    first_settings = {
        "env": {"ids": ["browsergym/openended"], "screenshots": False, "step_timeout_seconds": 60.0},
        "rollout": {"max_turns": 8, "max_tokens": 64},
    }

    def modules(self) -> list[str]:
        return ["browsergym.core", "gymnasium", "playwright"]

    def families(self) -> list[str]:
        return self.settings.ids

    def session(self) -> Env:
        return BrowserGymSession(self)

    def max_turns(self, family_name: str) -> int | None:
        return self.settings.turn_limit

    def reach(self) -> Reach:
        """Return the addresses that a policy may reach."""
        start_url = self.settings.options.get("task_kwargs", {}).get("start_url")
        suites = [value for name, value in os.environ.items() if name.startswith(SUITES) and "://" in value]
        return Reach([*self.settings.reachable, *suites, *filter(None, [start_url])])

    def make(self, family: str) -> Any:
        """Make the environment of a task. Raise `ConfigError` for an unknown id."""
        core, gymnasium = import_extra("browsergym.core", EXTRA), import_extra("gymnasium", EXTRA)
        suite, dot, _ = family.partition("/")[2].partition(".")
        if dot:
            import_extra(f"browsergym.{suite}", EXTRA)
        if family not in gymnasium.registry:
            known = [name for name in gymnasium.registry if name.startswith("browsergym/")]
            raise ConfigError(f"env.ids: unknown task {family!r} of BrowserGym", nearest(family, known))
        if not isinstance(core._PLAYWRIGHT, _Playwright):
            start = import_extra("playwright.sync_api", EXTRA).sync_playwright
            core._set_global_playwright(_Playwright(start().start(), find_chromium()))
        core._PLAYWRIGHT.chromium.flags = self.reach().flags()
        return gymnasium.make(family, disable_env_checker=True, **self.settings.options).unwrapped


class BrowserGymSession:
    """One session; each reset opens a new browser, as BrowserGym does."""

    def __init__(self, environment: BrowserGym) -> None:
        self._environment, self._reach = environment, environment.reach()
        self._env: Any = None

    async def reset(self, task: Task) -> Observation:
        """Open the task's page."""
        return await _in_thread(lambda: self._reset(task))

    async def step(self, action: str) -> StepResult:
        """Perform the action of a response. One that fails or does not exist is an error."""
        return await _in_thread(lambda: self._step(action))

    async def close(self) -> None:
        await _in_thread(self._release)

    def _reset(self, task: Task) -> Observation:
        self._release()
        self._env = self._environment.make(task.family)
        seen, _ = self._env.reset(seed=task.seed)
        shown = _observe(seen)
        self._goal = shown.goal
        return shown

    def _step(self, action: str) -> StepResult:
        seen, reward, terminated, truncated, _ = self._env.step(action.strip())
        shown = self._left() or _observe(seen)
        outcome = Outcome.REFUSED if shown.error else Outcome.DONE
        return StepResult(
            observation=shown,
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            info={"success": float(reward) >= 1.0} if terminated or truncated else {},
            actions=[
                TakenAction(action=Text(text=action), canonical=action.strip(), outcome=outcome, error=shown.error)
            ],
        )

    def _left(self) -> Observation | None:
        """Leave pages that the policy may not see. Return the error in place of them; None if there are none."""
        error = ""
        for page in self._env.context.pages:
            refused = [frame.url for frame in page.frames if self._reach.refuses(frame.url)]
            if refused:
                page.goto("about:blank")
                error = f"{refused[0]} cannot be reached"
        return Observation(goal=self._goal, text="", error=error) if error else None

    def _release(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            env.close()


class _Chromium:
    """Playwright's launcher of browsers, with the Chromium of this machine in place of a downloaded one."""

    def __init__(self, launcher: Any, program: str) -> None:
        self._launcher, self._program = launcher, program
        self.flags: list[str] = []

    def launch(self, args: Sequence[str] = (), **options: Any) -> Any:
        return self._launcher.launch(executable_path=self._program, args=[*args, *self.flags], **options)


class _Playwright:
    """Connection to Playwright as BrowserGym uses it; its chat window is a browser that no setting of it reaches."""

    def __init__(self, playwright: Any, program: str) -> None:
        self.selectors, self.chromium = playwright.selectors, _Chromium(playwright.chromium, program)


async def _in_thread(function: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_THREAD, function)


def _observe(seen: Any) -> Observation:
    """Return the goal, the accessibility tree, what the task says in its chat, and the error of the last action."""
    flatten = import_extra("browsergym.utils.obs", EXTRA).flatten_axtree_to_str
    text = flatten(seen["axtree_object"], extra_properties=seen["extra_element_properties"], filter_visible_only=True)
    return Observation(goal=seen["goal"] or "", text=text, error=seen["last_action_error"].partition("\nCall log")[0])
