"""Environment session whose observations contain the guidance of a guided rollout."""

from msgspec.structs import replace

from quartet.env.base import Env
from quartet.rollout.guidance.base import Guidance, Guide
from quartet.types import Observation, StepResult, Task


class GuidedEnv:
    """Session that adds advice to observations, so that agent loops need no code for it."""

    def __init__(self, env: Env, guidance: Guidance) -> None:
        self._env, self._guidance = env, guidance
        self._guide: Guide

    async def reset(self, task: Task) -> Observation:
        self._guide = self._guidance.guide(task)
        return self._guided(await self._env.reset(task))

    async def step(self, action: str) -> StepResult:
        """Apply an action. The last observation of an episode, to which the policy does not respond, has no advice."""
        result = await self._env.step(action)
        if result.terminated or result.truncated:
            return result
        return replace(result, observation=self._guided(result.observation))

    async def close(self) -> None:
        await self._env.close()

    def _guided(self, observation: Observation) -> Observation:
        return replace(observation, guidance=self._guide(observation))
