"""Environment session that begins a task where an expert has few actions left."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from weakref import WeakValueDictionary

from msgspec.structs import replace

from quartet import config
from quartet.actions.taken import taken_action
from quartet.env import make_environment
from quartet.env.base import Env, Environment, acting, restorable
from quartet.errors import EnvError, ExpertError
from quartet.types import ACTIONS_LEFT, Action, Message, Observation, StepResult, TakenAction, Task

MAX_ACTIONS = 100
"""Maximum number of actions of an expert in an environment without a turn limit of its own."""
MAX_SOLUTIONS = 1000
"""Number of tasks whose solutions a worker keeps, the newest ones."""


class WarmStarts:
    """Actions with which the environment's experts solve tasks. The rollouts of a group share them."""

    def __init__(self, env: config.Env) -> None:
        self._env = env
        self._solutions: OrderedDict[str, list[str]] = OrderedDict()
        self._playing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @cached_property
    def _environment(self) -> Environment:
        return make_environment(self._env)

    def session(self, env: Env, task: Task) -> Env:
        """Return the session for a rollout of the task: `env` itself, unless the task has `ACTIONS_LEFT`."""
        return WarmEnv(env, self) if ACTIONS_LEFT in task.params else env

    async def solution(self, env: Env, task: Task) -> list[str]:
        """Return the expert's actions, oldest first. The session plays them if they are not known yet, and no other
        session is about to.

        Raise `EnvError` if there is no expert, or it does not solve the task.
        """
        async with self._playing.setdefault(task.key, asyncio.Lock()):
            if task.key not in self._solutions:
                self._solutions[task.key] = await self._play(env, task)
                if len(self._solutions) > MAX_SOLUTIONS:
                    self._solutions.popitem(last=False)
            return self._solutions[task.key]

    async def _play(self, env: Env, task: Task) -> list[str]:
        expert = self._environment.expert(task.family, task.seed)
        if expert is None:
            raise EnvError(f"the family {task.family!r} has no expert, so its tasks cannot begin half done")
        seen, actions = await env.reset(task), list[str]()
        for _ in range(self._environment.max_turns(task.family) or MAX_ACTIONS):
            try:
                actions.append(expert(seen))
            except ExpertError as error:
                raise EnvError(f"the expert cannot play {task.key}: {error.what}") from error
            result = await env.step(actions[-1])
            seen = result.observation
            if result.terminated or result.truncated:
                if result.info.get("success", result.reward >= 1.0):
                    return actions
                break
        raise EnvError(f"the expert does not solve {task.key}, so the task cannot begin half done")


class WarmEnv:
    """Session of a rollout whose reset plays the expert's actions, except for the last `ACTIONS_LEFT`.

    The first observation lists these actions (`Observation.prepared`). In an environment of chat messages it also has
    their texts and results, as messages. A task whose expert has no more actions than are left begins at its beginning.
    """

    def __init__(self, env: Env, starts: WarmStarts) -> None:
        self._env, self._starts = env, starts

    async def reset(self, task: Task) -> Observation:
        """Start the task without the parameter, which environments do not know, and play the expert's actions."""
        left = int(task.params[ACTIONS_LEFT])
        whole = _whole(task)
        solution = await self._starts.solution(self._env, whole)
        seen = await self._env.reset(whole)
        opening, messages, prepared = seen, list(seen.messages), list[TakenAction]()
        for action in solution[: max(len(solution) - left, 0)]:
            result = await self._env.step(action)
            if result.terminated or result.truncated:
                raise EnvError(f"the actions of the expert ended {task.key} when they were repeated")
            seen = result.observation
            prepared += result.actions or [taken_action(action, seen.error)]
            messages += [Message("assistant", action), *seen.messages] if opening.messages else []
        return replace(seen, prepared=prepared, messages=messages, tools=opening.tools)

    async def step(self, action: str) -> StepResult:
        return await self._env.step(action)

    async def act(self, actions: Sequence[Action]) -> StepResult:
        return await acting(self._env).act(actions)

    async def snapshot(self) -> bytes:
        return await restorable(self._env).snapshot()

    async def restore(self, task: Task, snapshot: bytes) -> Observation:
        return await restorable(self._env).restore(_whole(task), snapshot)

    async def close(self) -> None:
        await self._env.close()


def _whole(task: Task) -> Task:
    """Return the task without the parameter, with all actions to be done."""
    return replace(task, params={name: value for name, value in task.params.items() if name != ACTIONS_LEFT})
