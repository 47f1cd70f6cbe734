"""Trajectories as chats: what `quartet sft` and most other fine-tuning tools read, and what demonstrations come as."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from quartet.actions.taken import taken_action
from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.exchange.lines import read_lines
from quartet.exchange.record import TrajectoryRecord
from quartet.policy.chat import FORM, Chat, Exchange, exchanges
from quartet.policy.renderer import Renderer
from quartet.registry import build
from quartet.types import Call, FinishReason, Observation, Sampling, Status, Task, TokenColumns, Tool, Trajectory, Turn

_ADVICE = "a demonstration names its task: " + FORM.replace("]}", '], "family": "...", "seed": 0}')


class ChatLine(Chat, frozen=True, kw_only=True):
    """A conversation, and the task it belongs to. A loop that starts anew at every turn makes one line per turn."""

    env: str = ""
    """Empty: that of the run that reads it."""
    family: str
    seed: int
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    turn: int = 0
    """Of a trajectory of several lines, which stand one after the other: 0, 1, 2, ..."""
    reward: float = 1.0
    """Of the whole trajectory; its first line counts."""
    success: bool = True
    policy: str = ""
    """The policy that said it, and what it was in the rollout; empty where a chat does not say."""
    role: str = ""
    observation_hash: str = ""
    """Hash of the observation format; empty if unknown."""


class ChatWriter:
    """One `ChatLine` per conversation."""

    def __init__(self, file: BinaryIO, recipe: Recipe) -> None:
        self._file, self._encoder, self._loop = file, msgspec.json.Encoder(), build(recipe.rollout.loop)

    def write(self, record: TrajectoryRecord) -> None:
        """A trajectory without turns leaves no line."""
        trajectory, task = record.trajectory, record.trajectory.task
        turns = trajectory.turns
        if not turns:
            return
        for turn, messages in enumerate(self._loop.chats(turns)):
            line = ChatLine(
                messages=messages,
                tools=turns[turn].observation.tools or None,
                env=task.env,
                family=task.family,
                seed=task.seed,
                params=task.params,
                turn=turn,
                reward=record.reward,
                success=trajectory.success,
                policy=trajectory.policy,
                role=trajectory.role,
                observation_hash=record.fingerprint.observation_hash if record.fingerprint else "",
            )
            self._file.write(self._encoder.encode(line) + b"\n")

    def finish(self) -> None:
        """Every line is whole already."""


def read_chat_trajectories(path: Path, env: str, renderer: Renderer) -> Iterator[tuple[int, str, Trajectory]]:
    """Yield number of the first line, observation hash and trajectory of each demonstration; `env` is that of the run.

    Its token ids are those that a rollout would have recorded, had the policy said the same. They were not sampled, so
    they have neither log-probs nor versions. Raises `ConfigError` that names the line.
    """
    open_lines: list[tuple[int, ChatLine]] = []
    for number, line in read_lines(path, ChatLine, "chat that names its task", _ADVICE):
        if line.turn == 0:
            yield from _joined(path, open_lines, env, renderer)
            open_lines = []
        elif line.turn != len(open_lines) or _task(line, env) != _task(open_lines[0][1], env):
            raise ConfigError(
                f"{path}:{number}: turn {line.turn} does not follow turn {line.turn - 1} of the same task",
                "turns of a trajectory stand one after the other, counted from 0",
            )
        open_lines.append((number, line))
    yield from _joined(path, open_lines, env, renderer)


def _joined(
    path: Path, lines: list[tuple[int, ChatLine]], env: str, renderer: Renderer
) -> Iterator[tuple[int, str, Trajectory]]:
    """The demonstration that the lines make together, if there are any."""
    calls: list[Call] = []
    turns: list[Turn] = []
    for number, line in lines:
        try:
            rendered = list(exchanges(line, renderer))
        except ValueError as error:
            raise ConfigError(f"{path}:{number}: {error}", f"one chat per line: {FORM}") from error
        for exchange in rendered:
            turns.append(_turn(exchange, line.tools or [], call_index=len(calls)))
            calls.append(_demonstrated(exchange.prompt_ids, exchange.response_ids))
    for number, first in lines[:1]:
        yield (
            number,
            first.observation_hash,
            Trajectory(
                task=_task(first, env),
                status=Status.COMPLETED,
                calls=calls,
                turns=turns,
                rewards={"task": first.reward},
                success=first.success,
            ),
        )


def _task(line: ChatLine, env: str) -> Task:
    return Task(env=line.env or env, family=line.family, seed=line.seed, params=line.params)


def _turn(exchange: Exchange, tools: list[Tool], call_index: int) -> Turn:
    """A chat does not tell goal and page apart."""
    seen = Observation(goal="", text="", messages=exchange.read, tools=tools)
    if [message.role for message in exchange.read] == ["user"]:
        seen = Observation(goal="", text=exchange.read[0].content, tools=tools)
    return Turn(observation=seen, call_index=call_index, response=exchange.said, actions=[taken_action(exchange.said)])


def _demonstrated(prompt: list[int], response: list[int]) -> Call:
    return Call(
        prompt_ids=prompt,
        response=TokenColumns(token_ids=response),
        sampling=Sampling(max_tokens=len(response)),
        finish_reason=FinishReason.STOP,
    )
