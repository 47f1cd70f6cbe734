"""Environment session of a blind evaluation: its pictures are those of another task."""

from collections.abc import Sequence

from msgspec.structs import replace

from quartet.env.base import Env, acting
from quartet.types import Action, Observation, Picture, StepResult, Task


class BlindEnv:
    """Session in which every observation shows the first picture of another task of the same family.

    A policy that solves a task here has guessed, or read the goal: it has not seen the task's own picture.
    """

    def __init__(self, env: Env) -> None:
        self._env = env
        self._pictures: list[Picture] = []

    async def reset(self, task: Task) -> Observation:
        """Start the task with the next seed for its picture, then `task`."""
        other = await self._env.reset(replace(task, seed=task.seed + 1))
        self._pictures = other.pictures
        return self._blind(await self._env.reset(task))

    async def step(self, action: str) -> StepResult:
        return self._result(await self._env.step(action))

    async def act(self, actions: Sequence[Action]) -> StepResult:
        return self._result(await acting(self._env).act(actions))

    async def close(self) -> None:
        await self._env.close()

    def _result(self, result: StepResult) -> StepResult:
        return replace(result, observation=self._blind(result.observation))

    def _blind(self, observation: Observation) -> Observation:
        return replace(observation, pictures=self._pictures)
