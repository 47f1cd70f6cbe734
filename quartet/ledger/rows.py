"""Typed records that the ledger's queries return."""

from enum import StrEnum
from typing import Any

from msgspec import Struct


class AppendOutcome(StrEnum):
    """Outcome of appending a trajectory."""

    APPENDED = "appended"
    REQUEUED = "requeued"
    """It ended with an infrastructure error and the rollout gets another attempt."""
    LATE = "late"
    """Its group had already closed: stored, never added to the group."""
    RECYCLED = "recycled"
    """It is unfinished and is continued in another attempt."""
    EVICTED = "evicted"
    """It is unfinished and was recycled too often, so the rollout is cancelled."""


class ModuleRow(Struct, frozen=True, kw_only=True):
    """Last report of a module. Durations sum over all its processes in this run; times are in Unix seconds."""

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
        """Fraction of its lifetime that the module waited."""
        return self.waiting_seconds / self.alive_seconds if self.alive_seconds > 0 else 0.0


class Event(Struct, frozen=True, kw_only=True):
    """An event of the run for display. `time` is in Unix seconds."""

    time: float
    kind: str
    fields: dict[str, Any]


class GroupOutcome(Struct, frozen=True, kw_only=True):
    """Outcome of one closed training group."""

    countable: int
    """Number of members that counted."""
    successes: int
    mixed: bool
    """True if its own members had different rewards."""
    judged_at_step: int
    """Number of committed train steps when the filters judged it."""
    max_turns: int
    """The turn limit of all its rollouts."""


class FamilyStats(Struct, frozen=True, kw_only=True):
    """Training statistics of a task family: newest countable rollouts (a window), newest groups, longest success."""

    rollouts: int
    """Number of rollouts in the window, to which the six fields below also refer."""
    successes: int
    mean_reward: float
    mean_turns: float
    mean_response_tokens: float
    truncated: int = 0
    """Failures that were truncated by the turn limit of their group."""
    tightest_limit: int = 0
    """Lowest turn limit that truncated one of them."""
    outcomes: list[GroupOutcome] = []
    """Newest closed groups with a countable member, newest first."""
    groups_admitted: int = 0
    """Groups admitted since the run began."""
    known_successes: int = 0
    """Successes since the run began, counted up to 64."""
    longest_success: int = 0
    """Largest number of turns of a success since the run began; 0 before the first."""

    @property
    def success_rate(self) -> float:
        """Success rate in the window; 0 if there is no rollout yet."""
        return self.successes / self.rollouts if self.rollouts else 0.0

    @property
    def truncated_share(self) -> float:
        """Share of the window that failed at the turn limit of its group; 0 if there is no rollout yet."""
        return self.truncated / self.rollouts if self.rollouts else 0.0


class RepeatedError(Struct, frozen=True, kw_only=True):
    """An error that consecutive newest rollouts failed with."""

    count: int
    error: str
    status: str
    rollout_id: int
    """Id of the newest of these rollouts."""
    blob: str
    """Blob of its record, which holds the traceback."""


class SinceCommit(Struct, frozen=True, kw_only=True):
    """Training since the newest committed train step."""

    verdicts: dict[str, int]
    """Number of groups by drop reason; "" for kept ones."""
    statuses: dict[str, int]
    """Number of attempts of training rollouts by status."""


class QueueSizes(Struct, frozen=True, kw_only=True):
    """Current queue sizes."""

    rollouts: dict[str, int]
    """Number of unfinished rollouts by state (queued, leased), evaluation included."""
    groups: dict[str, int]
    """Number of training groups that hold an admission slot, by state (open, closed, trainable, claimed)."""
