"""The words an environment host and its clients exchange: OpenEnv's session protocol, one JSON object per message.

A connection to `/ws` is one session. The client sends `reset`, `step`, `state` or `close`; every message but `close`
is answered by exactly one `observation`, `state` or `error`. One request may be in flight, so there are no request
ids. An error does not end the session.
"""

import math
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct, field

from quartet.types import Observation, StepResult, TakenAction, Task


class ErrorCode(StrEnum):
    """Why a request was refused."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    """The environment failed or took too long; the episode is lost, the next reset gets a fresh session."""
    REWARD_ERROR = "REWARD_ERROR"
    """The reward is no finite number, or could not be computed; the episode is lost as with `EXECUTION_ERROR`."""
    SESSION_ERROR = "SESSION_ERROR"
    """The request does not fit the session's state: a step before the first reset."""
    CAPACITY_REACHED = "CAPACITY_REACHED"


class Message(Struct):
    """Envelope of every message, in both directions."""

    type: str
    data: msgspec.Raw = msgspec.Raw(b"{}")


class ResetData(Struct, kw_only=True):
    """OpenEnv's reset fields (`seed`, `episode_id`), and what else names a task of ours."""

    env: str = ""
    family: str
    seed: int = 0
    params: dict[str, Any] = field(default_factory=dict)
    episode_id: str = ""
    trace: str = ""
    """Of the spans that the host records of the episode; empty: of none."""

    def task(self) -> Task:
        return Task(env=self.env, family=self.family, seed=self.seed, params=self.params)


class StepData(Struct):
    action: str


class Metadata(Struct, kw_only=True):
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    actions: list[TakenAction] = []
    rewards: dict[str, float] = {}


class ObservationData(Struct, kw_only=True):
    """Answer to `reset` (its reward is null) and `step`. A screenshot travels as base64."""

    observation: Observation
    reward: float | None = None
    done: bool = False
    metadata: Metadata = field(default_factory=Metadata)

    @classmethod
    def of_step(cls, result: StepResult) -> "ObservationData":
        return cls(
            observation=result.observation,
            reward=result.reward,
            done=result.terminated or result.truncated,
            metadata=Metadata(
                terminated=result.terminated,
                truncated=result.truncated,
                info=result.info,
                actions=result.actions,
                rewards=result.rewards,
            ),
        )

    def step_result(self) -> StepResult:
        """Read an answer as a step. A plain OpenEnv server sends no metadata: there, `done` means terminated. A reward
        of null is NaN: JSON writes so what is no number, and it must not pass for 0."""
        return StepResult(
            observation=self.observation,
            reward=math.nan if self.reward is None else self.reward,
            terminated=self.metadata.terminated or (self.done and not self.metadata.truncated),
            truncated=self.metadata.truncated,
            info=self.metadata.info,
            actions=self.metadata.actions,
            rewards=self.metadata.rewards,
        )


class StateData(Struct, kw_only=True):
    episode_id: str
    step_count: int


class ErrorData(Struct, kw_only=True, omit_defaults=True):
    message: str
    code: ErrorCode
    traceback: str = ""
    """Of the exception that the environment's code raised; absent otherwise."""


def encode(kind: str, data: Struct | None = None) -> str:
    """One message as text."""
    return msgspec.json.encode({"type": kind, "data": {} if data is None else data}).decode()
