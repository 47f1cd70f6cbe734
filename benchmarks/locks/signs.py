"""Locks for a table of probabilities: environment, agent loop, exporters are the real ones, and a press is one token.

The policy reads the sign of a page, and whether the last press failed. A rollout takes a millisecond.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from benchmarks.learning_experiments.table import Table, TablePolicy, logits_of
from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.env.base import Env
from quartet.env.environment.locks import JAMMED, code, row, signs
from quartet.policy.renderer import Renderer
from quartet.rollout.client import ModelClient
from quartet.rollout.loop.base import Limits, loop_of
from quartet.types import FinishReason, GroupMember, Message, Prompt, Sampling, Task, Trajectory


class Signs(Table):
    """The pages of some locks, each with and without an error, and the responses that the policy can sample.

    Pages of a sign share its probabilities; all pages with an error share a change of them.
    """

    def __init__(self, families: Sequence[str], initial: Mapping[str, Mapping[str, float]]) -> None:
        """`initial` maps each sign to the initial probabilities of responses, which are nearly 0 where left out."""
        self.families, self._initial = families, initial
        self._signs = [*dict.fromkeys([*(sign for family in families for sign in signs(family)), JAMMED])]
        self._responses = [*dict.fromkeys(response for chances in initial.values() for response in chances)]

    def page(self, sign: str, *, failed: bool = False) -> int:
        """Return the token of a page."""
        return 2 * self._signs.index(sign) + failed

    def page_of(self, message: Message) -> int:
        """Return the token of the page in a message, of which sign and error are read."""
        lines = message.content.split("\n")
        (sign,) = (line.removeprefix("heading ") for line in lines if line.startswith("heading "))
        return self.page(sign, failed=any(line.startswith("error ") for line in lines))

    def token(self, response: str) -> int:
        """Return the token of a response."""
        return 2 * len(self._signs) + self._responses.index(response)

    def response(self, token: int) -> str:
        """Return the text of a token that the policy sampled."""
        return self._responses[token - 2 * len(self._signs)]

    def logits(self) -> np.ndarray:
        chances = {
            sign: {self.token(text): share for text, share in self._initial[sign].items()} for sign in self._signs
        }
        rows = {self.page(sign, failed=failed): chances[sign] for sign in self._signs for failed in (False, True)}
        return logits_of(rows, 2 * len(self._signs) + len(self._responses))

    def features(self) -> np.ndarray:
        own_VV = super().features()
        for sign in self._signs:
            own_VV[self.page(sign, failed=True)] += own_VV[self.page(sign)]
            own_VV[self.page(sign, failed=True), self.page(sign, failed=True)] = 0
            own_VV[self.page(sign, failed=True), self.page(JAMMED, failed=True)] = 1
        return own_VV

    def first_try(self, policy: TablePolicy, task: Task) -> float:
        """Return the probability that every first press of a task is right."""
        right = code(task.family)
        return float(np.prod([policy.chance(self.page(s), self.token(f"click [{right[s]}]")) for s in row(task)]))


class Player:
    """Plays rollouts with the recipe's agent loop, whose engine is the table."""

    def __init__(self, world: Signs, policy: TablePolicy, draw: random.Random) -> None:
        self._world, self._policy, self._draw = world, policy, draw
        rollout = policy.recipe.rollout
        self.loop = loop_of(policy.recipe)
        self._limits = Limits(max_turns=rollout.max_turns, max_tokens=1, timeout_seconds=3600.0)
        self.renderer = cast("Renderer", SignRenderer(world))

    def play(self, task: Task, env: Env) -> Trajectory:
        """Play one rollout."""
        model = ModelClient(self, self.renderer, sampling=Sampling(seed=0), conversation=task.key)
        (trajectory,) = asyncio.run(self.loop.run(task, env, {"main": model}, self._limits))
        return trajectory

    def group(self, task: Task, env: Env) -> list[GroupMember]:
        """Play the rollouts of a group."""
        numbers = range(self._policy.recipe.control.rollouts_per_group)
        return [GroupMember(rollout_id=number, trajectory=self.play(task, env)) for number in numbers]

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        token, logprob = self._policy.sample(request.prompt_ids[-1], self._draw)
        self._policy.tokens += 1
        return GenerateResult(
            token_ids=[token],
            logprobs=[min(logprob, 0.0)],
            versions=[self._policy.version],
            finish_reason=FinishReason.LENGTH,
        )

    async def abort(self, request_id: str) -> None:
        """Do nothing: no request is ever in flight."""

    async def version(self) -> int:
        return self._policy.version

    async def close(self) -> None:
        """Do nothing: a table holds no resources."""


class SignRenderer:
    """Renderer of a page to the one token that the policy reads."""

    stop_token_ids: tuple[int, ...] = ()

    def __init__(self, world: Signs) -> None:
        self._world = world

    def start_chat(self, messages: Sequence[Message], *_: Any) -> Prompt:
        return Prompt([self._world.page_of(messages[-1])])

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(self._world.response, ids))
