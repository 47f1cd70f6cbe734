"""Trajectories as chats, the format of `quartet sft` and most fine-tuning tools; demonstrations can have it too."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec.structs import replace

from quartet.actions.taken import taken_action
from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.exchange.base import Writer
from quartet.exchange.lines import read_lines
from quartet.exchange.record import TrajectoryRecord
from quartet.policy.chat import ANSWER, FORM, Chat, Exchange, decode_chat, exchanges, naming_line
from quartet.policy.renderer import Renderer
from quartet.registry import build
from quartet.types import Call, FinishReason, Observation, Sampling, Status, Task, TokenColumns, Tool, Trajectory, Turn

_ADVICE = "a demonstration names its task: " + FORM.replace("]}", '], "family": "...", "seed": 0}')


class ChatLine(Chat, frozen=True, kw_only=True):
    """Conversation of a chat file, with its task.

    An agent loop that keeps the whole conversation gives one line per trajectory; a loop that begins a new conversation
    in each turn gives one line per turn.
    """

    env: str = ""
    """Name of the environment; empty for the environment of the run that reads the line."""
    family: str
    seed: int
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    turn: int = 0
    """Number of the line within its trajectory, from 0. The lines of a trajectory are consecutive."""
    reward: float = 1.0
    """Reward of the whole trajectory; only that of the first line is read."""
    success: bool = True
    policy: str = ""
    """Name of the policy that sampled the answers; empty if unknown."""
    role: str = ""
    """Role of the policy in the rollout; empty if unknown."""
    observation_hash: str = ""
    """Hash of the observation format; empty if unknown."""


class ChatWriter(Writer):
    """Writer of one `ChatLine` per conversation. Each answer is learned in one line, after the text that the policy
    read: where a line repeats earlier answers of other lines, only its last one is learned."""

    def __init__(self, file: BinaryIO, recipe: Recipe, limit: int | None = None) -> None:
        super().__init__(file, recipe, limit)
        self._file, self._encoder = file, msgspec.json.Encoder()
        self._loop = build(recipe.rollout.loop, build(recipe.rollout.history))

    def write(self, record: TrajectoryRecord) -> None:
        """Append the lines of a trajectory; a trajectory without turns has none."""
        self.write_turns(record, record.trajectory.turns)

    def write_turns(self, record: TrajectoryRecord, turns: Sequence[Turn], first_learned: int = 0) -> None:
        """Append the lines of these turns, with the task and the outcome of a record.

        Answers before the turn `first_learned` and empty ones are read and not learned. Guidance is left out, as in
        training, and so are pictures that the policy did not read, since the history `sliding` counts them.
        """
        trajectory, task = record.trajectory, record.trajectory.task
        unread = {"guidance": ""} if any(call.media for call in trajectory.calls) else {"guidance": "", "pictures": []}
        turns = [replace(turn, observation=replace(turn.observation, **unread)) for turn in turns]
        chats = self._loop.chats(turns) if turns else []
        whole, written = len(chats) == 1, 0
        for turn, messages in enumerate(chats):
            if not whole and turn < first_learned:
                continue
            answers = [message.content.strip() for message in messages if message.role == ANSWER]
            read = first_learned if whole else len(answers) - 1
            unlearned = [number for number, answer in enumerate(answers) if number < read or not answer]
            if len(unlearned) == len(answers):
                continue  # a policy may end its turn at once
            line = ChatLine(
                messages=messages,
                unlearned=unlearned,
                tools=self._loop.tools(turns, turn) or None,
                env=task.env,
                family=task.family,
                seed=task.seed,
                params=task.params,
                turn=written,
                reward=record.reward,
                success=trajectory.success,
                policy=trajectory.policy,
                role=trajectory.role,
                observation_hash=record.fingerprint.observation_hash if record.fingerprint else "",
            )
            self._file.write(self._encoder.encode(line) + b"\n")
            written += 1


def read_chat_trajectories(path: Path, env: str, renderer: Renderer) -> Iterator[tuple[int, str, Trajectory]]:
    """Yield (number of the first line, observation hash, trajectory) of each demonstration.

    `env` is the name of the run's environment. The token ids are those that a rollout with the same texts would have
    recorded. They were not sampled, so they have neither log-probs nor versions. Answers that are not learned are parts
    of prompts. Raises `ConfigError`, which names the line, if a line is invalid.
    """
    open_lines: list[tuple[int, ChatLine]] = []
    for number, line in read_lines(path, partial(decode_chat, kind=ChatLine), "chat that names its task", _ADVICE):
        if line.turn == 0:
            yield from _joined(path, open_lines, env, renderer)
            open_lines = []
        elif line.turn != len(open_lines) or _task(line, env) != _task(open_lines[0][1], env):
            raise ConfigError(
                f"{path}:{number}: turn {line.turn} does not follow turn {line.turn - 1} of the same trajectory",
                "write the turns of a trajectory one after another, counted from 0",
            )
        open_lines.append((number, line))
    yield from _joined(path, open_lines, env, renderer)


def _joined(
    path: Path, lines: list[tuple[int, ChatLine]], env: str, renderer: Renderer
) -> Iterator[tuple[int, str, Trajectory]]:
    """Yield the demonstration that consists of `lines`; nothing if there are none."""
    calls: list[Call] = []
    turns: list[Turn] = []
    for number, line in lines:
        with naming_line(path, number):
            rendered = list(exchanges(line, renderer))
        for exchange in (one for place, one in enumerate(rendered) if place not in line.unlearned):
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
    """Return one exchange as a turn. Its observation has no goal, since a chat does not separate goal and page."""
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
