"""Environment sessions in virtual time, on the real ledger: claim, renew, append, and recalls of cancelled rollouts."""

from collections.abc import Callable

from benchmarks.virtual.clock import VirtualClock
from benchmarks.virtual.fleet import Fleet
from benchmarks.virtual.rollout import Sampled, VirtualRollout
from benchmarks.virtual.scenario import Scenario
from quartet.config import Recipe
from quartet.errors import LeaseLostError
from quartet.ledger import AppendOutcome, Ledger
from quartet.manager.straggler.base import StragglerRule
from quartet.types import RolloutLease

_RENEWALS_PER_LEASE = 5
"""As in `RolloutRunner`."""


class Sessions:
    """All sessions; each runs one rollout at a time. `notify` wakes the data manager after an append."""

    def __init__(
        self,
        clock: VirtualClock,
        scenario: Scenario,
        recipe: Recipe,
        ledger: Ledger,
        fleet: Fleet,
        stragglers: StragglerRule,
        notify: Callable[[], None],
    ) -> None:
        self._clock, self._scenario, self._recipe, self._ledger = clock, scenario, recipe, ledger
        self._fleet, self._max_recycles, self._notify = fleet, stragglers.max_recycles, notify
        self._running: set[VirtualRollout] = set()
        self.away = 0
        """Number of sessions that have left."""
        self.left: list[tuple[float, RolloutLease]] = []
        """Time and lease of each attempt that ended because its session left."""
        self._kept: dict[int, Sampled] = {}
        """Calls of paused rollouts by the rollout's id."""
        self._since = clock.now
        self.actions = self.finished = self.superseded = 0
        self.occupied_seconds = self.environment_seconds = self.started_seconds = self._ended_seconds = 0.0

    def claim(self) -> None:
        """Start a queued rollout in each free session."""
        free = self._recipe.env.sessions - self.away - len(self._running)
        if free <= 0:
            return
        self.count_time()
        for lease in self._ledger.rollouts.claim("worker", free, self._recipe.rollout.lease_seconds):
            kind = self._scenario.kinds[lease.task.family]
            kept = self._kept.pop(lease.rollout_id, None) or Sampled()
            rollout = VirtualRollout(self._clock, self._fleet, kind, lease, self._renew, self._end, kept)
            self._running.add(rollout)

    def recall_cancelled(self) -> None:
        """Recall the rollouts that lost their lease, because their group has closed."""
        held = self._ledger.rollouts.held(one.lease for one in self._running)
        for one in [one for one in self._running if (one.lease.rollout_id, one.lease.attempt) not in held]:
            if not one.recalled:
                one.recall()

    def pause(self) -> None:
        """Recall all rollouts; they are requeued with their tokens."""
        for one in [one for one in self._running if not one.recalled]:
            one.recall(paused=True)

    def leave(self, sessions: int) -> None:
        """Let sessions leave without releasing their leases, which expire. Idle sessions leave first, and then those of
        the newest rollouts."""
        self.count_time()
        self.away += sessions
        left = self._recipe.env.sessions - self.away
        for one in sorted(self._running, key=lambda one: one.lease.rollout_id)[left:]:
            self._running.remove(one)
            self.left.append((self._clock.now, one.lease))
            one.recall()

    def count_time(self) -> None:
        """Bring the counted seconds up to now."""
        elapsed, self._since = self._clock.now - self._since, self._clock.now
        self.occupied_seconds += elapsed * len(self._running)

    @property
    def leases(self) -> list[RolloutLease]:
        """Leases of the running rollouts."""
        return [one.lease for one in self._running]

    @property
    def rollout_seconds(self) -> float:
        """Sum of the durations of all rollouts so far, running ones included."""
        return self._ended_seconds + sum(self._clock.now - one.began for one in self._running)

    def _renew(self, rollout: VirtualRollout) -> None:
        lease_seconds = self._recipe.rollout.lease_seconds
        if self._clock.now - rollout.renewed < lease_seconds / _RENEWALS_PER_LEASE:
            return
        try:
            self._ledger.rollouts.renew(rollout.lease, lease_seconds)
        except LeaseLostError:
            rollout.recalled = True
        rollout.renewed = self._clock.now

    def _end(self, rollout: VirtualRollout) -> None:
        if rollout not in self._running:
            return  # its session has left
        self.count_time()
        self._running.remove(rollout)
        self.actions += rollout.turns
        self.environment_seconds += rollout.environment_seconds
        self._ended_seconds += self._clock.now - rollout.began
        self.started_seconds += max(self._clock.now - rollout.began - rollout.reset_seconds, 0.0)
        if rollout.paused:
            self._recycle(rollout)
        elif rollout.recalled:
            self.superseded += 1
        else:
            self._append(rollout)
        self._notify()

    def _recycle(self, rollout: VirtualRollout) -> None:
        self._kept[rollout.lease.rollout_id] = rollout.sampled
        [record] = rollout.records(last_call_only=False)  # `april` does not support several policies
        self._ledger.trajectories.recycle(rollout.lease, record, self._max_recycles)

    def _append(self, rollout: VirtualRollout) -> None:
        try:
            first, *others = rollout.records(last_call_only=self._scenario.last_call_only)
            attempts = self._recipe.rollout.max_attempts
            outcome = self._ledger.trajectories.append(rollout.lease, first, attempts, others)
        except LeaseLostError:
            self.superseded += 1
        else:
            self.finished += outcome is not AppendOutcome.REQUEUED
