"""Two-armed bandit as a text environment: the smallest learnable task, for tests and first steps.

The page shows two buttons (arms), one of which is right. In family `named` the goal names the right arm; in family
`fixed` the left arm is always right. A task's `params` may set `turns` (pulls per episode, default 1), `delay_seconds`
(of every reset and step) and `fail_rate` (share of calls that raise `EnvError`). The failures depend on the seed and on
the number of episodes started with it, so a retry may succeed.
"""

import asyncio
import random
from collections import Counter

from quartet.actions.grammar import ActionError, clicked, parse_action
from quartet.config.section import Section
from quartet.env.base import Env, Environment, Expert
from quartet.errors import ConfigError, EnvError, nearest
from quartet.types import Done, Infeasible, Observation, StepResult, Task

FAMILIES = ["named", "fixed"]
ARMS = ["left", "right"]
PAGE = "\n".join(f"button {arm} [{ref}]" for ref, arm in enumerate(ARMS, 1))


class Bandit(Environment):
    """Two buttons, one of them right: the smallest learnable task."""

    deterministic = True
    grammar = "`click LABEL [1]` or `done`"
    first_settings = {
        "env": {"families": ["fixed"], "screenshots": False},
        "rollout": {"max_turns": 1, "max_tokens": 8},
    }

    def __init__(self, settings: Section) -> None:
        super().__init__(settings)
        self._episodes: Counter[str] = Counter()

    def families(self) -> list[str]:
        return FAMILIES

    def session(self) -> Env:
        return BanditEnv(self._episodes)

    def expert(self, family_name: str, seed: int) -> Expert:
        return lambda seen: f"click [{1 + ('right' in seen.goal)}]"


class BanditEnv:
    """One session. The reward, given at the end of an episode, is the share of right pulls."""

    def __init__(self, episodes: Counter[str]) -> None:
        self._episodes = episodes
        self._task: Task | None = None

    async def reset(self, task: Task) -> Observation:
        """Start an episode. Raise `ConfigError` for an unknown family, `EnvError` if the task requests failures."""
        if task.family not in FAMILIES:
            raise ConfigError(f"unknown bandit family {task.family!r}", nearest(task.family, FAMILIES))
        self._episodes[task.key] += 1
        self._task = task
        self._faults = random.Random(f"{task.key} {self._episodes[task.key]}")
        self._right = ARMS[0] if task.family == "fixed" else random.Random(task.key).choice(ARMS)
        self._pulls: list[bool] = []
        await self._pass_time(task)
        return self._observe(task)

    async def step(self, action: str) -> StepResult:
        """Pull the arm that `click LABEL [ref]` names, or stop early with `done`."""
        if self._task is None:
            raise EnvError("a bandit was stepped before its first reset", "call reset(task) first")
        await self._pass_time(self._task)
        try:
            parsed = parse_action(action)
        except ActionError as error:
            return self._result(self._task, error=str(error))
        if isinstance(parsed, Done | Infeasible):
            return self._result(self._task, stop=True)
        ref = clicked(parsed)
        if ref is None:
            return self._result(self._task, error="only click and done work here")
        if not 1 <= ref <= len(ARMS):
            return self._result(self._task, error=f"no element [{ref}]")
        self._pulls.append(ARMS[ref - 1] == self._right)
        return self._result(self._task)

    async def close(self) -> None:
        self._task = None

    def _observe(self, task: Task, error: str = "") -> Observation:
        goal = f"Pull the {self._right} arm." if task.family == "named" else "Pull an arm."
        return Observation(goal=goal, text=PAGE, error=error)

    def _result(self, task: Task, *, stop: bool = False, error: str = "") -> StepResult:
        turns = task.params.get("turns", 1)
        ended = stop or len(self._pulls) >= turns
        reward = sum(self._pulls) / turns if ended else 0.0
        info = {"success": reward == 1.0} if ended else {}
        return StepResult(observation=self._observe(task, error), reward=reward, terminated=ended, info=info)

    async def _pass_time(self, task: Task) -> None:
        await asyncio.sleep(task.params.get("delay_seconds", 0.0))
        if self._faults.random() < task.params.get("fail_rate", 0.0):
            raise EnvError(f"the bandit failed on purpose ({task.key})", "lower the task's fail_rate")
