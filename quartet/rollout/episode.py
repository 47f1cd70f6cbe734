"""One episode, turn by turn: the code that the single-agent loops share. The loops differ in how they build prompts."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from copy import copy
from typing import Self

from msgspec.structs import replace

from quartet.actions.taken import taken_action
from quartet.env.base import Env
from quartet.errors import PromptTooLongError
from quartet.rollout.client import ModelClient
from quartet.rollout.loop.base import Limits
from quartet.types import Call, Observation, Outcome, Prompt, Status, StepResult, Task, Trajectory, Turn

BuildPrompt = Callable[["Episode", Observation], Prompt | list[int] | Awaitable[Prompt]]
"""Function of a loop, perhaps a coroutine, that makes a prompt from an observation; token ids alone are a prompt
without pictures."""


class Episode:
    """The state of a running episode; `play` runs it to its end."""

    def __init__(self, task: Task, env: Env, model: ModelClient, limits: Limits) -> None:
        self.task, self.model = task, model
        self.turns: list[Turn] = []
        self._env, self._limits = env, limits
        self._seen: Observation | None = None
        self._success: bool | None = None

    @property
    def actions(self) -> list[str]:
        """Texts of the actions so far, oldest first."""
        return actions_of(self.turns)

    async def play(self, build_prompt: BuildPrompt) -> Trajectory:
        """Observe, generate, act, until the task ends or a limit is reached.

        A prompt that does not fit ends the episode as `truncated_tokens`. Raises all other errors of environment and
        engine.
        """
        return self.trajectory(*await ended(self._take_turns(build_prompt), self._limits))

    async def _take_turns(self, build_prompt: BuildPrompt) -> Status:
        observation = self._seen = await self._env.reset(self.task)
        for _ in range(self._limits.max_turns):
            result = await self.take_turn(observation, await self.prompt(build_prompt, observation))
            if result.terminated:
                return Status.COMPLETED
            if result.truncated:
                break
            observation = result.observation
        return Status.TRUNCATED_TURNS

    async def prompt(self, build_prompt: BuildPrompt, observation: Observation) -> Prompt:
        """Return the prompt for an observation. In a guided rollout it names the ids that are trained instead.

        Raises `ValueError`, which fails this rollout only, if guidance was added to a prompt with pictures: a recipe's
        check knows only whether pictures may be taken.
        """
        prompt = await built(build_prompt(self, observation))
        if not observation.guidance and not any(call.train_prompt_ids for call in self.model.calls):
            return prompt
        if prompt.media:
            raise ValueError(
                "guidance was added to a prompt with pictures, whose places differ in the prompt that is trained: set "
                "rollout.guidance = 'none', or env.screenshots = false"
            )
        trained = await built(build_prompt(self.as_trained(), replace(observation, guidance="")))
        return prompt if trained.ids == prompt.ids else replace(prompt, train_ids=trained.ids)

    def as_trained(self) -> Self:
        """Return a copy whose calls have the prompts that are trained. A prompt built from it has no guidance and no
        failures that were rolled back. Building it must not sample."""
        bare = copy(self)
        bare.model = copy(self.model)
        bare.model.calls = [replace(call, prompt_ids=call.trained_prompt_ids) for call in self.model.calls]
        bare.turns = [replace(turn, observation=replace(turn.observation, guidance="")) for turn in self.turns]
        return bare

    async def take_turn(self, observation: Observation, prompt: Prompt | list[int]) -> StepResult:
        """Generate a response to the observation, act, and record the turn."""
        call = await self.model.generate(prompt, self._limits.max_tokens)
        return await self._act(observation, call)

    async def _act(self, observation: Observation, call: Call) -> StepResult:
        """Apply a response and record the turn, also if the time limit is reached during the action."""
        response = self.model.renderer.decode(call.response_ids)
        turn = Turn(observation=observation, call_index=self.model.index_of(call), response=response)
        self._seen = None
        try:
            result = await self._env.step(response)
        except asyncio.CancelledError:
            late = replace(taken_action(response), outcome=Outcome.TIMEOUT, error="the time was over")
            self.turns.append(replace(turn, actions=[late]))
            raise
        self._seen, self._success = result.observation, result.info.get("success")
        actions = result.actions or [taken_action(response, result.observation.error)]
        self.turns.append(replace(turn, actions=actions, rewards=result.rewards or {"task": result.reward}))
        return result

    def trajectory(self, status: Status, wall_seconds: float) -> Trajectory:
        """Return the record of the episode so far."""
        reward = sum(turn.reward for turn in self.turns)
        return Trajectory(
            task=self.task,
            status=status,
            calls=self.model.calls,
            turns=self.turns,
            final_observation=self._seen,
            rewards=summed(turn.rewards for turn in self.turns),
            success=reward >= 1.0 if self._success is None else bool(self._success),
            wall_seconds=wall_seconds,
            policy=self.model.policy,
        )


async def ended(turns: Awaitable[Status], limits: Limits) -> tuple[Status, float]:
    """Wait for the turns of an episode. Return its status, and its duration in seconds.

    An episode that reaches the time limit, or has a prompt that does not fit, is truncated. Other errors are raised.
    """
    started = time.monotonic()
    clock = asyncio.timeout(limits.timeout_seconds)
    try:
        async with clock:
            status = await turns
    except PromptTooLongError:
        status = Status.TRUNCATED_TOKENS
    except TimeoutError:
        if not clock.expired():
            raise
        status = Status.TRUNCATED_TIME
    return status, time.monotonic() - started


async def built(prompt: Prompt | list[int] | Awaitable[Prompt]) -> Prompt:
    """Wait for a prompt that a coroutine builds; make a prompt of token ids alone."""
    prompt = await prompt if isinstance(prompt, Awaitable) else prompt
    return prompt if isinstance(prompt, Prompt) else Prompt(prompt)


def actions_of(turns: Sequence[Turn]) -> list[str]:
    """Return the actions of these turns in their own notation, without those that were not started or have no text."""
    taken = [action for turn in turns for action in turn.actions if action.outcome is not Outcome.ENDED]
    return [action.canonical for action in taken if action.canonical]


def summed(rewards: Iterable[dict[str, float]]) -> dict[str, float]:
    """Return the sum of each named part."""
    sums: defaultdict[str, float] = defaultdict(float)
    for parts in rewards:
        for name, value in parts.items():
            sums[name] += value
    return dict(sums)
