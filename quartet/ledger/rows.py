"""What the ledger answers to questions, as typed records."""

from enum import StrEnum
from typing import Any

from msgspec import Struct


class AppendOutcome(StrEnum):
    """What became of an appended trajectory."""

    APPENDED = "appended"
    REQUEUED = "requeued"
    """It ended in an infrastructure error and the rollout gets another attempt."""
    LATE = "late"
    """Its group had closed already: stored, never added."""
    RECYCLED = "recycled"
    """It is unfinished and goes on in another attempt."""
    EVICTED = "evicted"
    """It is unfinished and was recycled too often: cancelled."""


class ModuleRow(Struct, frozen=True, kw_only=True):
    """What a module last said of itself. Seconds count all its processes of this run; times are Unix seconds."""

    module: str
    state: str
    waiting_for: str
    ends_when: str
    since: float
    beat_at: float
    waiting_seconds: float
    alive_seconds: float
    url: str
    pid: int

    @property
    def share_waiting(self) -> float:
        """Fraction of its life that it waited."""
        return self.waiting_seconds / self.alive_seconds if self.alive_seconds > 0 else 0.0


class Event(Struct, frozen=True, kw_only=True):
    """Something worth telling a person. `time` is Unix seconds."""

    time: float
    kind: str
    fields: dict[str, Any]


class GroupOutcome(Struct, frozen=True, kw_only=True):
    """How one closed training group ended."""

    countable: int
    """Members that counted."""
    successes: int
    mixed: bool
    """Its own members had different rewards."""
    judged_at_step: int
    """Train steps that were committed when the filters judged it."""
    max_turns: int
    """The turn limit of all its rollouts."""


class FamilyStats(Struct, frozen=True, kw_only=True):
    """One task family in training: its newest countable rollouts (a window), its newest groups, its longest success."""

    rollouts: int
    """In the window; so are the six that follow."""
    successes: int
    mean_reward: float
    mean_turns: float
    mean_response_tokens: float
    truncated: int = 0
    """Failures that were cut off by the turn limit of their group."""
    tightest_limit: int = 0
    """Lowest limit that cut one of those off."""
    outcomes: list[GroupOutcome] = []
    """Newest closed groups with a countable member, newest first."""
    groups_admitted: int = 0
    """Since the run began."""
    known_successes: int = 0
    """Since the run began, counted up to 64."""
    longest_success: int = 0
    """Most turns of a successful rollout since the run began; 0 before the first."""

    @property
    def success_rate(self) -> float:
        """0 when there is no rollout yet."""
        return self.successes / self.rollouts if self.rollouts else 0.0

    @property
    def truncated_share(self) -> float:
        """Share of the window that ended `truncated_turns`; 0 when there is no rollout yet."""
        return self.truncated / self.rollouts if self.rollouts else 0.0


class RepeatedError(Struct, frozen=True, kw_only=True):
    """An error that the newest rollouts failed with, one after the other."""

    count: int
    error: str
    status: str
    rollout_id: int
    """The newest of them."""
    blob: str
    """Its record, which holds the traceback."""


class SinceCommit(Struct, frozen=True, kw_only=True):
    """Training since the newest committed train step."""

    verdicts: dict[str, int]
    """Groups by the reason of their drop; "" for the kept."""
    statuses: dict[str, int]
    """Attempts of training rollouts by how they ended."""


class QueueSizes(Struct, frozen=True, kw_only=True):
    """What waits where, right now."""

    rollouts: dict[str, int]
    """Unfinished rollouts by state (queued, leased), evaluation included."""
    groups: dict[str, int]
    """Training groups that hold an admission slot, by state (open, closed, trainable, claimed)."""


class Rates(Struct, frozen=True, kw_only=True):
    """Speed over the last seconds, evaluation included."""

    rollouts_per_second: float
    prompt_tokens_per_second: float
    response_tokens_per_second: float
    trajectories_stored: int
    """Since the run began, retried and late ones and demonstrations included."""


class Totals(Struct, frozen=True, kw_only=True):
    """The run so far, from queries over the whole ledger."""

    train_rollouts: int
    """Training rollouts that ended, whatever their status, but for cancelled ones."""
    turns: int
    prompt_tokens: int
    response_tokens: int
    trained_tokens: int
    """Response tokens that counted in the loss of a committed batch, as the trainer reported it."""
    masked_tokens: int
    """Response tokens of committed batches that were left out because they were too old, as the trainer reported it."""
    held_back_seconds: float
    """How long committed batches waited for due groups (`admission.on_late` "wait"), as the trainer reported it."""
    groups: dict[str, int]
    """Training groups by state."""
    dropped_by_reason: dict[str, int]
    """Dropped training groups by reason."""
    attempts: dict[str, int]
    """Stored trajectories by `TrajectoryKind`."""
    replayed: int
    """Uses of role `replay` in committed batches."""
    lost: int
    """Appended trajectories that were neither trained on nor dropped with a reason, nor can still be. Must be 0."""
    trained_twice: int
    """Parts of rollouts that two committed uses of role `fresh` trained on. Must be 0."""


class Cost(Struct, frozen=True, kw_only=True):
    """Training rollouts and their tokens."""

    rollouts: int
    prompt_tokens: int
    response_tokens: int


class EvaluationTime(Struct, frozen=True, kw_only=True):
    """One held-out evaluation: its tag, the newest policy version when it was admitted, and when (Unix seconds)."""

    tag: str
    version: int
    created_at: float
