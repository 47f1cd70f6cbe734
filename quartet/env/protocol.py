"""Messages between an environment host and its clients: OpenEnv's session protocol, one JSON object per message.

A connection to `/ws` is one session. The client sends `reset`, `step`, `state` or `close`. Every message but `close`
gets exactly one answer: `observation`, `state` or `error`. At most one request is in flight, so requests have no ids.
An error does not end the session. Quartet extends the protocol by a request `snapshot` with an answer `snapshot`, by
the field `actions` of `step`, by fields of `reset`, `state` and `error`, and by the key `quartet` of `metadata`.
Quartet's client first sends `state`, to compare versions of Quartet. OpenEnv's own clients need none of the extensions:
they may leave out every field of `reset`.
"""

import math
import secrets
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from quartet import config
from quartet.errors import EnvError, EnvFaultError, RewardError
from quartet.types import Action, Observation, StepResult, TakenAction, Task

T = TypeVar("T", bound=Struct)
MAX_SNAPSHOT_BYTES = 16 << 20
"""Maximum size of a stored state; in JSON it is a third larger."""
MAX_REQUEST_BYTES = 24 << 20
"""Maximum size of a client's message. The largest message is a reset to a stored state."""


FIRST_HELD_OUT_SEED: int = config.Evaluation().first_seed


class ErrorCode(StrEnum):
    """Reason why a request failed."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    """The environment failed or timed out; the episode is lost, and the next reset gets a new session."""
    REWARD_ERROR = "REWARD_ERROR"
    """The reward is not finite or could not be computed; the episode is lost as with `EXECUTION_ERROR`."""
    SESSION_ERROR = "SESSION_ERROR"
    """The request is invalid in the session's state: a step or a snapshot while no episode is running."""
    CAPACITY_REACHED = "CAPACITY_REACHED"


class Message(Struct):
    """Envelope of every message, in both directions."""

    type: str
    data: msgspec.Raw = msgspec.Raw(b"{}")


class ResetData(Struct, kw_only=True):
    """OpenEnv's reset fields (`seed`, `episode_id`), and the other fields of a `Task`."""

    env: str = ""
    """Environment of the task; if empty, that of the host."""
    family: str = ""
    """Task family; if empty, the first of the host."""
    seed: int | None = None
    """Seed of the task; null draws a training seed."""
    params: dict[str, Any] = field(default_factory=dict)
    episode_id: str | None = None
    trace: str = ""
    """Trace of the spans that the host records for the episode; empty to record none."""
    snapshot: bytes | None = None
    """Stored state in which the episode starts, from the answer to `snapshot`; null to start with a normal reset."""

    def task(self, own_env: str, first_family: str) -> Task:
        """Return the task; the client may leave its environment, family and seed open."""
        # The global generator is another session's while that one draws (`OwnRandom`).
        seed = secrets.randbelow(FIRST_HELD_OUT_SEED) if self.seed is None else self.seed
        return Task(env=self.env or own_env, family=self.family or first_family, seed=seed, params=self.params)


class StepData(Struct, omit_defaults=True):
    """A step, with the action as text or with a list of typed actions, which is Quartet's extension."""

    action: str
    """Text of the action; empty if there are typed actions."""
    actions: list[Action] | None = None
    """Actions to perform in order; null if the environment reads the text."""


class StepFacts(Struct, kw_only=True):
    """Fields of a step's result that OpenEnv does not have."""

    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    actions: list[TakenAction] = []
    rewards: dict[str, float] = {}


class Metadata(Struct, kw_only=True):
    """Metadata of an answer. OpenEnv leaves its keys to each server; Quartet reads only its own key."""

    quartet: StepFacts = field(default_factory=StepFacts)


class ObservationData(Struct, kw_only=True):
    """Answer to `reset` (with null reward) and `step`. A screenshot is sent as base64."""

    observation: Observation
    reward: float | None = None
    done: bool = False
    metadata: Metadata = field(default_factory=Metadata)

    @classmethod
    def of_step(cls, result: StepResult) -> "ObservationData":
        facts = StepFacts(
            terminated=result.terminated,
            truncated=result.truncated,
            info=result.info,
            actions=result.actions,
            rewards=result.rewards,
        )
        return cls(
            observation=result.observation,
            reward=result.reward,
            done=result.terminated or result.truncated,
            metadata=Metadata(quartet=facts),
        )

    def step_result(self) -> StepResult:
        """Return the answer as a step result.

        Without `metadata.quartet` (a plain OpenEnv server) `done` means terminated. A null reward becomes NaN, because
        JSON writes NaN as null; such a reward must not count as 0.
        """
        facts = self.metadata.quartet
        return StepResult(
            observation=self.observation,
            reward=math.nan if self.reward is None else self.reward,
            terminated=facts.terminated or (self.done and not facts.truncated),
            truncated=facts.truncated,
            info=facts.info,
            actions=facts.actions,
            rewards=facts.rewards,
        )


class SnapshotData(Struct):
    """Answer to `snapshot`: the state of the running episode, as base64."""

    snapshot: bytes


class StateData(Struct, kw_only=True):
    episode_id: str
    step_count: int
    quartet_version: str = ""
    """Version of the host's Quartet, which its clients need to have too; empty from a plain OpenEnv server."""


class ErrorData(Struct, kw_only=True, omit_defaults=True):
    message: str
    code: ErrorCode
    fault: bool = False
    """True if the environment's code raised an exception or returned an invalid result."""
    traceback: str = ""
    """Traceback of an exception in the environment's code; absent for other errors."""


def encode(kind: str, data: Struct | None = None) -> str:
    """Encode one message as text."""
    return msgspec.json.encode({"type": kind, "data": {} if data is None else data}).decode()


def read_answer(text: bytes | str, answer_type: type[T], source: str = "") -> T:
    """Decode an answer. Raise the error that it reports, or `EnvError` if it violates the protocol. With a `source`,
    messages begin with it."""
    try:
        message = msgspec.json.decode(text, type=Message)
        if message.type == "error":
            error = msgspec.json.decode(message.data, type=ErrorData)
            if error.code is ErrorCode.REWARD_ERROR:
                raise RewardError(error.message)
            if error.fault:
                raise EnvFaultError(error.message, error.traceback)
            raise EnvError(f"{source} answered {error.code}: {error.message}" if source else error.message)
        return msgspec.json.decode(message.data, type=answer_type)
    except msgspec.DecodeError as error:
        raise EnvError(f"cannot decode the answer of {source or 'a session'}: {error}") from error
