"""Simulated desktop for benchmarks: a text environment whose delays follow a workload file.

The page always shows the same row of buttons, and lines of meaningless text. `next` is always the right button, and the
reward is the share of right presses. The number of presses in an episode is drawn with the seed. After the last press
the page says that it is finished, and the policy ends the episode with `done`, which takes no time.
"""

import asyncio
import random
from collections import Counter
from typing import ClassVar

from benchmarks.workload import Workload, read_workload
from quartet.actions.grammar import ActionError, clicked, parse_action
from quartet.config.section import LocalPath, Section
from quartet.env.base import Env, Environment
from quartet.errors import ConfigError, EnvError, nearest
from quartet.rollout.loop.alternate import REWARDS
from quartet.types import Action, Done, Infeasible, Observation, StepResult, Task

ENVIRONMENT = "benchmarks.desk:PretendedDesktop"
"""`env.name` of recipes."""
FAMILIES = ["press"]
PLAYERS = 2
"""Policies that press in turn in the loop `alternate`. All of them get the desk's reward."""
BUTTONS = ["back", "next", "open", "close"]
RIGHT = "next"
GOAL = "Finish the page."
INSTRUCTIONS = (
    "You see a page of a program as text, one line per element, and work on it until it is finished. "
    "In each turn say what you see, and then name one button of the page with its reference in a line of its own. "
    "One of the buttons goes on, the others lead nowhere, and nobody tells which. "
    "When the page says that it is finished, answer done instead of a button."
)
"""Part of the first observation of an episode."""
FINISHED = "text finished"
_WORDS = [first + second for first in ("ba", "de", "fi", "go", "lu") for second in ("ka", "mo", "ne", "ri", "su")]


def draws_key(task: Task) -> str:
    """Return the text that seeds a task's random draws. It is the same for every name under which a recipe finds this
    environment."""
    return f"desk/{task.family}/{task.seed}"


class Desk:
    """One episode without its delays."""

    def __init__(self, task: Task, workload: Workload) -> None:
        """Start the episode. Raise `ConfigError` for an unknown family."""
        if task.family not in FAMILIES:
            raise ConfigError(f"unknown desk family {task.family!r}", nearest(task.family, FAMILIES))
        self._task = task
        self.presses = random.Random(f"presses/{draws_key(task)}").choice(workload.presses)
        self._pressed: list[bool] = []

    @property
    def finished(self) -> bool:
        return len(self._pressed) == self.presses

    @property
    def reward(self) -> float:
        """Share of right presses so far."""
        return sum(self._pressed) / self.presses

    @property
    def success(self) -> bool:
        return self.finished and all(self._pressed)

    def observe(self, error: str = "") -> Observation:
        """Return the current page."""
        draw = random.Random(f"{draws_key(self._task)}/{len(self._pressed)}")
        noise = [f"text {' '.join(draw.choices(_WORDS, k=8))}" for _ in range(2)]
        row = [FINISHED] if self.finished else [f"button {label} [{ref}]" for ref, label in enumerate(BUTTONS, 1)]
        first = [] if self._pressed else [INSTRUCTIONS]
        return Observation(goal=GOAL, text="\n".join([*first, *noise, *row]), error=error)

    def press(self, action: Action) -> str:
        """Press the button that a click names; return why this is impossible, or ""."""
        ref = clicked(action)
        if ref is None:
            return "only click and done work here"
        if self.finished or not 1 <= ref <= len(BUTTONS):
            return f"no element [{ref}]"
        self._pressed.append(BUTTONS[ref - 1] == RIGHT)
        return ""


class PretendedDesktop(Environment):
    """Simulated desktop for benchmarks: resets and steps take as long as a workload file says."""

    class Settings(Section):
        workload: LocalPath = ""
        """JSON file of delays and episode lengths, as in the folder `benchmarks/workloads`; empty for no delays."""

    settings: Settings
    grammar = "`click LABEL [1]` or `done`"
    first_settings: ClassVar = {"env": {"screenshots": False}, "rollout": {"max_turns": 8}}

    def __init__(self, settings: Settings) -> None:
        """Read the workload. Raise `ConfigError` if the file is not a workload."""
        super().__init__(settings)
        self._workload = read_workload(settings.workload)
        self._episodes: Counter[str] = Counter()

    def families(self) -> list[str]:
        return FAMILIES

    def session(self) -> Env:
        return DeskEnv(self._workload, self._episodes)


class DeskEnv:
    """One session. The n-th episode of a task takes the same time in every run."""

    def __init__(self, workload: Workload, episodes: Counter[str]) -> None:
        self._workload, self._episodes = workload, episodes
        self._desk: Desk | None = None

    async def reset(self, task: Task) -> Observation:
        """Start an episode. Raise `ConfigError` for an unknown family."""
        self._desk = Desk(task, self._workload)
        self._episodes[task.key] += 1
        self._draw = random.Random(f"{draws_key(task)} {self._episodes[task.key]}")
        await asyncio.sleep(self._workload.reset_delay(self._draw))
        return self._desk.observe()

    async def step(self, action: str) -> StepResult:
        """Press the button that `click LABEL [ref]` names, or end the episode with `done`."""
        if self._desk is None:
            raise EnvError("a desk was stepped before its first reset", "call reset(task) first")
        before = self._desk.reward
        try:
            parsed = parse_action(action)
            stopped = isinstance(parsed, Done | Infeasible)
            error = "" if stopped else self._desk.press(parsed)
        except ActionError as problem:
            stopped, error = False, str(problem)
        if not stopped:
            await asyncio.sleep(self._workload.step_delay(self._draw))
        return StepResult(
            observation=self._desk.observe(error),
            reward=self._desk.reward - before,
            terminated=stopped,
            info={"success": self._desk.success, REWARDS: [self._desk.reward] * PLAYERS},
        )

    async def close(self) -> None:
        self._desk = None
