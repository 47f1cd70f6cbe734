"""One episode, turn by turn: what every single-agent loop shares. Loops differ in how they build the next prompt."""

import asyncio
import time
from collections.abc import Callable, Sequence

from quartet.env.action import ActionError, format_action, parse_action
from quartet.env.base import Env
from quartet.errors import PromptTooLongError
from quartet.rollout.client import ModelClient
from quartet.rollout.loop.base import Limits
from quartet.types import Call, Observation, Status, StepResult, Task, Trajectory, Turn


class Episode:
    """The state of a running episode; `play` runs it to its end."""

    def __init__(self, task: Task, env: Env, model: ModelClient, limits: Limits) -> None:
        self.task, self.model = task, model
        self.turns: list[Turn] = []
        self._env, self._limits = env, limits
        self._success: bool | None = None

    @property
    def actions(self) -> list[str]:
        """What was done so far, oldest first."""
        return actions_of(self.turns)

    async def play(self, build_prompt: Callable[["Episode", Observation], list[int]]) -> Trajectory:
        """Observe, generate, act, until the task ends or a limit is met. Raises what environment and engine raise,
        except for a prompt that does not fit: that is `truncated_tokens`."""
        started = time.monotonic()
        clock = asyncio.timeout(self._limits.timeout_seconds)
        try:
            async with clock:
                status = await self._take_turns(build_prompt)
        except PromptTooLongError:
            status = Status.TRUNCATED_TOKENS
        except TimeoutError:
            if not clock.expired():
                raise
            status = Status.TRUNCATED_TIME
        return self._trajectory(status, time.monotonic() - started)

    async def _take_turns(self, build_prompt: Callable[["Episode", Observation], list[int]]) -> Status:
        observation = await self._env.reset(self.task)
        for _ in range(self._limits.max_turns):
            call = await self.model.generate(build_prompt(self, observation), self._limits.max_tokens)
            response = self.model.renderer.decode(call.response_ids)
            result = await self._env.step(response)
            self._record(observation, call, response, result)
            if result.terminated:
                return Status.COMPLETED
            if result.truncated:
                break
            observation = result.observation
        return Status.TRUNCATED_TURNS

    def _record(self, observation: Observation, call: Call, response: str, result: StepResult) -> None:
        turn = Turn(
            observation=observation,
            call_index=self.model.index_of(call),
            response=response,
            action=canonical_action(response),
            error=result.observation.error,
            reward=result.reward,
            points=[(x, y) for x, y in result.info.get("points", [])],
        )
        self.turns.append(turn)
        self._success = result.info.get("success")

    def _trajectory(self, status: Status, wall_seconds: float) -> Trajectory:
        reward = sum(turn.reward for turn in self.turns)
        return Trajectory(
            task=self.task,
            status=status,
            calls=self.model.calls,
            turns=self.turns,
            rewards={"task": reward},
            success=reward >= 1.0 if self._success is None else bool(self._success),
            wall_seconds=wall_seconds,
        )


def actions_of(turns: Sequence[Turn]) -> list[str]:
    """What was done in these turns; responses without an action are left out."""
    return [turn.action for turn in turns if turn.action]


def canonical_action(response: str) -> str:
    """The action a response holds, in canonical form, or "" when it holds none."""
    try:
        return format_action(parse_action(response))
    except ActionError:
        return ""
