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


class FamilyStats(Struct, frozen=True, kw_only=True):
    """The newest countable training rollouts of one task family (a window, not the whole run)."""

    rollouts: int
    successes: int
    mean_reward: float
    mean_turns: float
    mean_response_tokens: float
    groups: int
    """The newest closed training groups of the family (a window as well)."""
    mixed_groups: int
    """How many of them had members with different rewards."""

    @property
    def success_rate(self) -> float:
        """0 when there is no rollout yet."""
        return self.successes / self.rollouts if self.rollouts else 0.0


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
    rollouts_finished: int
    """Since the run began."""


class Totals(Struct, frozen=True, kw_only=True):
    """The run so far, from queries over the whole ledger."""

    train_rollouts: int
    """Training rollouts that ended, whatever their status, but for cancelled ones."""
    turns: int
    prompt_tokens: int
    response_tokens: int
    trained_tokens: int
    """Response tokens of committed batches, masked ones included."""
    groups: dict[str, int]
    """Training groups by state."""
    dropped_by_reason: dict[str, int]
    """Dropped training groups by reason."""
    attempts: dict[str, int]
    """Stored trajectories by kind: final, retried, late, superseded."""
    lost: int
    """Appended trajectories that were neither trained on nor dropped with a reason, nor can still be. Must be 0."""
    trained_twice: int
    """Rollouts that two committed uses of role `fresh` trained on. Must be 0."""
