"""Typed records that the ledger's queries return."""

from enum import StrEnum
from typing import Any

from msgspec import Struct


class AppendOutcome(StrEnum):
    """Outcome of appending a trajectory."""

    APPENDED = "appended"
    REQUEUED = "requeued"
    """The trajectory ended with an infrastructure error, and the rollout gets another attempt."""
    LATE = "late"
    """The trajectory's group had already closed, so the trajectory is stored and not added to the group."""
    RECYCLED = "recycled"
    """The trajectory is unfinished, and another attempt continues it."""
    EVICTED = "evicted"
    """The trajectory is unfinished and was recycled too often, so the rollout is cancelled."""


class Member(Struct, frozen=True, kw_only=True):
    """Module that takes part in the run now: its heartbeats have not stopped."""

    module: str
    url: str
    capacity: int
    """Sessions that an environment host serves at once; 0 for other modules."""


class ModuleRow(Struct, frozen=True, kw_only=True):
    """Last report of a module. Durations sum over all its processes in this run; times are in Unix seconds."""

    module: str
    state: str
    waiting_for: str
    ends_when: str
    since: float
    beat_at: float
    """Time of the last heartbeat by the wall clock of the reader, computed anew at each read."""
    stored_beat: float
    """Time of the last heartbeat as its module wrote it. Compare it for equality only."""
    waiting_seconds: float
    alive_seconds: float
    url: str
    pid: int

    @property
    def share_waiting(self) -> float:
        """Fraction of the module's lifetime that it spent waiting."""
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
    """True if the group's own members (not replayed ones) had different rewards."""
    judged_at_step: int
    """Number of committed train steps when the filters judged the group."""
    max_turns: int
    """Turn limit of all rollouts of the group."""
    params: dict[str, Any] = {}
    """Parameters of the group's task."""


class FamilyStats(Struct, frozen=True, kw_only=True):
    """Training statistics of a task family, over a window of its newest countable rollouts unless a field says
    otherwise."""

    rollouts: int
    """Number of rollouts in the window."""
    successes: int
    mean_reward: float
    mean_turns: float
    mean_response_tokens: float
    truncated: int = 0
    """Number of failed rollouts that the turn limit of their group truncated."""
    tightest_limit: int = 0
    """Lowest turn limit that truncated a failed rollout of the window."""
    outcomes: list[GroupOutcome] = []
    """Newest judged groups with a countable member, newest first."""
    groups_admitted: int = 0
    """Number of groups admitted since the run began."""
    known_successes: int = 0
    """Number of successes since the run began, counted up to 64."""
    longest_success: int = 0
    """Largest number of turns of a success since the run began; 0 before the first."""

    @property
    def success_rate(self) -> float:
        """Success rate in the window; 0 if there is no rollout yet."""
        return self.successes / self.rollouts if self.rollouts else 0.0

    @property
    def truncated_share(self) -> float:
        """Share of the window's rollouts that failed at the turn limit of their group; 0 if there is no rollout yet."""
        return self.truncated / self.rollouts if self.rollouts else 0.0


class RepeatedError(Struct, frozen=True, kw_only=True):
    """An error with which the newest rollouts failed, one after another."""

    count: int
    error: str
    status: str
    rollout_id: int
    """Id of the newest rollout with the error."""
    blob: str
    """Blob of that rollout's record, which holds the traceback."""


class SinceCommit(Struct, frozen=True, kw_only=True):
    """Counts of groups and rollouts since the newest committed train step, or since a later resume."""

    verdicts: dict[str, int]
    """Number of groups by drop reason; "" for kept ones."""
    statuses: dict[str, int]
    """Number of attempts of training rollouts by status."""
    solved: int
    """Number of dropped groups in which all countable members succeeded, without guidance and from the task's own
    beginning."""
    overtaken: int
    """Number of groups without a verdict that were admitted before the first of the judged groups closed."""
    resumed: bool
    """True if the run was resumed after its newest train step: the counts begin there."""


class QueueSizes(Struct, frozen=True, kw_only=True):
    """Current queue sizes."""

    rollouts: dict[str, int]
    """Number of unfinished rollouts by state (queued, leased), evaluation included."""
    groups: dict[str, int]
    """Number of training groups that are admitted and not yet trained or dropped, by state (open, closed, trainable,
    claimed)."""
