"""The vocabulary of Quartet as typed records. Read this file first.

A **task** is attempted in an environment. One attempt is a **rollout**; the rollouts of one task that are compared
with each other form a **group**. A rollout is a sequence of **turns** (observation, response, action); every response
comes from one **call** of the model, recorded with its exact tokens. The record of a rollout is its **trajectory**.
Shapes stand in comments; every per-token list of a call has the same length.
"""

from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct, field

# ---------------------------------------------------------------------------------------------- task and environment


class Task(Struct, frozen=True, kw_only=True):
    """Something to be done in an environment."""

    env: str
    """Registered environment name, for example `miniwob`."""
    family: str
    """Tasks that differ only in their seed share a family; control keeps its statistics per family."""
    seed: int
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Stable identity: the same key means the same task, in every run."""
        return f"{self.env}/{self.family}/{self.seed}"


class Observation(Struct, frozen=True, kw_only=True):
    """What the policy is shown before it responds."""

    goal: str
    text: str
    """Everything a text policy reads besides the goal, for a page: one line per visible element."""
    error: str = ""
    """Set when the previous action was malformed or could not be done: the policy's own doing, never a crash."""
    screenshot: bytes | None = None
    """Encoded picture (PNG, JPEG or WebP), or None."""


class StepResult(Struct, frozen=True, kw_only=True):
    """What one action led to."""

    observation: Observation
    reward: float
    terminated: bool
    """The task itself ended."""
    truncated: bool = False
    """The environment cut the episode off (its own limit, not ours)."""
    info: dict[str, Any] = field(default_factory=dict)


# --------------------------------------------------------------------------------------------------- calls and turns


class Sampling(Struct, frozen=True, kw_only=True):
    """How tokens are drawn. Recorded with every call: importance weights need it."""

    temperature: float = 1.0
    """0 means greedy."""
    top_p: float = 1.0
    max_tokens: int = 32
    seed: int = 0
    """With the token's position this seeds the draw, so a request samples the same whatever else is in its batch."""


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class Call(Struct, frozen=True, kw_only=True):
    """One generation by the model, recorded once and never tokenized again."""

    policy: str = "main"
    prompt_ids: list[int]  # [num_prompt_tokens]
    response_ids: list[int]  # [num_response_tokens]
    logprobs: list[float]  # [num_response_tokens], of the distribution actually sampled from, in nats
    versions: list[int]  # [num_response_tokens], policy version that sampled each token
    # Both are empty when no policy sampled the response: it was demonstrated.
    sampling: Sampling
    finish_reason: FinishReason

    def __post_init__(self) -> None:
        if {len(self.logprobs), len(self.versions)} not in ({len(self.response_ids)}, {0}):
            raise ValueError(
                f"a call's per-token lists differ in length: {len(self.response_ids)} ids, "
                f"{len(self.logprobs)} logprobs, {len(self.versions)} versions"
            )

    @property
    def has_logprobs(self) -> bool:
        """False for a demonstrated response, which no policy sampled."""
        return len(self.logprobs) == len(self.response_ids)


class Turn(Struct, frozen=True, kw_only=True):
    """One observation, one response, one action applied."""

    observation: Observation
    call_index: int
    """Index of the call in `Trajectory.calls` that produced this turn's response."""
    response: str
    """The response as text, for people; training reads the call."""
    action: str
    """The action in canonical form, or "" when the response held none."""
    error: str = ""
    """Why the response was no valid action, or could not be done."""
    reward: float = 0.0
    role: str = "agent"


# ------------------------------------------------------------------------------------------------------- trajectories


class Status(StrEnum):
    """How a rollout ended. A malformed action is a turn with an error observation, not an error status."""

    COMPLETED = "completed"
    TRUNCATED_TURNS = "truncated_turns"
    TRUNCATED_TOKENS = "truncated_tokens"
    TRUNCATED_TIME = "truncated_time"
    """Says more about the machine than about the policy: neither in the baseline nor trained."""
    ERROR_ENV = "error_env"
    ERROR_ENGINE = "error_engine"
    ERROR_REWARD = "error_reward"
    ERROR_AGENT = "error_agent"
    """A bug in our own loop: no retry, an alarm."""
    CANCELLED = "cancelled"
    DAMAGED = "damaged"
    """A blob was lost or failed its checksum."""

    @property
    def retried(self) -> bool:
        """An infrastructure failure: worth another attempt on a fresh environment, never a reward of 0."""
        return self in (Status.ERROR_ENV, Status.ERROR_ENGINE, Status.ERROR_REWARD)

    @property
    def countable(self) -> bool:
        """Counts in the group's baseline and is trained."""
        return self in (Status.COMPLETED, Status.TRUNCATED_TURNS, Status.TRUNCATED_TOKENS)


class Trajectory(Struct, frozen=True, kw_only=True):
    """The record of one rollout."""

    task: Task
    status: Status
    calls: list[Call]
    turns: list[Turn]
    rewards: dict[str, float]
    """Named reward parts; `reward` is their sum."""
    success: bool
    error: str = ""
    wall_seconds: float = 0.0
    parent: str | None = None
    """Rollout id this one branched from."""

    @property
    def reward(self) -> float:
        return sum(self.rewards.values())

    @property
    def oldest_version(self) -> int | None:
        """Lowest policy version among all sampled tokens; None when nothing was sampled."""
        return min((min(call.versions) for call in self.calls if call.versions), default=None)

    @property
    def newest_version(self) -> int | None:
        """Highest policy version among all sampled tokens; None when nothing was sampled."""
        return max((max(call.versions) for call in self.calls if call.versions), default=None)

    @property
    def num_response_tokens(self) -> int:
        return sum(len(call.response_ids) for call in self.calls)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(call.prompt_ids) for call in self.calls)


# ------------------------------------------------------------------------------------ the ledger's three state machines


class RolloutState(StrEnum):
    """queued -> leased -> finished, and back to queued for another attempt (all moves: `quartet.data.transitions`)."""

    QUEUED = "queued"
    LEASED = "leased"
    FINISHED = "finished"


class GroupState(StrEnum):
    """open -> closed -> trainable -> claimed -> trained, or dropped with a reason on the way."""

    OPEN = "open"
    CLOSED = "closed"
    TRAINABLE = "trainable"
    CLAIMED = "claimed"
    TRAINED = "trained"
    DROPPED = "dropped"


class BatchState(StrEnum):
    """claimed -> committed, or released with its groups trainable again."""

    CLAIMED = "claimed"
    COMMITTED = "committed"
    RELEASED = "released"


class Purpose(StrEnum):
    """Why a group exists. Only training groups are trained and take an admission slot."""

    TRAIN = "train"
    EVAL = "eval"
    DEMONSTRATION = "demonstration"
    """Successes that no rollout of this run made, read from a file for the success pool."""


class RolloutPlan(Struct, frozen=True, kw_only=True):
    """What control decided for one group, written when the group is admitted."""

    task: Task
    num_rollouts: int
    max_turns: int
    purpose: Purpose = Purpose.TRAIN
    temperature: float = 1.0
    tag: str = ""
    """For evaluation: which evaluation this belongs to, for example `before/greedy`."""


class RolloutLease(Struct, frozen=True, kw_only=True):
    """The right to run one rollout until the deadline. Every write it allows is conditional on `attempt`."""

    rollout_id: int
    group_id: int
    attempt: int
    index: int
    """Position in the group, from 0."""
    task: Task
    max_turns: int
    sampling_seed: int
    """Same for every attempt: a retried rollout draws the same random numbers."""
    temperature: float
    purpose: Purpose
    deadline: float
    """Unix seconds."""


OnLate = Literal["mask", "wait", "drop"]
"""What becomes of a group that outlives its pace; see `quartet.config.Admission.on_late`."""


class ReplayRule(StrEnum):
    """What stands for the probability under which a replayed token was sampled."""

    STORED = "stored"
    """The recorded log-probs: off-policy, so the importance weight says how likely the token still is."""
    RECOMPUTE = "recompute"
    """The trainer's own old log-probs, weight 1: what is unlikely by now, or was never sampled, is learned in full."""


class GroupMember(Struct, frozen=True, kw_only=True):
    """One finished rollout of a claimed group."""

    rollout_id: int
    trajectory: Trajectory
    replay: ReplayRule | None = None
    """Set for a stored rollout that joined the group; None for one of its own."""


class Group(Struct, frozen=True, kw_only=True):
    """The rollouts of one task that are compared with each other."""

    group_id: int
    task: Task
    members: list[GroupMember]


class Batch(Struct, frozen=True, kw_only=True):
    """What one claim takes: one train step, at most one new policy."""

    batch_id: int
    attempt: int
    train_step: int
    """The step this batch becomes when committed, from 1."""
    start_version: int
    """The policy version the train step starts from."""
    groups: list[Group]


class Policy(Struct, frozen=True, kw_only=True):
    """A committed set of weights."""

    version: int
    path: str
    train_step: int
    name: str = "main"
