"""Frequent queries, whose cost does not grow with the run."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.groups import ADMITTED_STATES
from quartet.ledger.part import LedgerPart
from quartet.ledger.rows import FamilyStats, GroupOutcome, QueueSizes, Rates
from quartet.ledger.schema import IS_FINAL, families, groups, rollouts, trajectories
from quartet.types import Purpose, RolloutState, Status

_COUNTED = (trajectories.c.purpose == Purpose.TRAIN, trajectories.c.counted)
NEWEST_GROUPS, MOST_KNOWN_SUCCESSES = 48, 64
"""Maximum numbers of closed groups that `FamilyStats` holds, and of successes that it counts, per family."""
_ROLLED_OUT = trajectories.c.purpose != Purpose.DEMONSTRATION


class Statistics(LedgerPart):
    def statistics(self, window: int) -> dict[str, FamilyStats]:
        """Return the policy's training statistics of all admitted families, over the newest `window` countable rollouts
        of each."""
        with self._database.read() as connection:
            names = list(connection.execute(sa.select(families.c.family)).scalars())
            return {name: self._family_stats(connection, name, window) for name in names}

    def family_statistics(self, family: str, window: int) -> FamilyStats:
        """Return the training statistics of one family; zeros for a family that was never admitted."""
        with self._database.read() as connection:
            return self._family_stats(connection, family, window)

    def recent_success(self, n: int) -> float | None:
        """Return the success rate of the newest `n` countable training rollouts; None before the first."""
        mine = sa.select(trajectories.c.success).where(*_COUNTED, trajectories.c.policy == self.policy)
        query = mine.order_by(trajectories.c.id.desc()).limit(n)
        with self._database.read() as connection:
            successes = connection.execute(query).scalars().all()
        return sum(successes) / len(successes) if successes else None

    def rates(self, window_seconds: float) -> Rates:
        """Return the throughput over the last `window_seconds`, or since the first rollout in this window."""
        now = self._clock()
        columns = (trajectories.c[name] for name in ("rollout_id", "created_at", "prompt_tokens", "response_tokens"))
        recent = sa.select(*columns).where(IS_FINAL, _ROLLED_OUT, trajectories.c.created_at > now - window_seconds)
        with self._database.read() as connection:
            rows = connection.execute(recent).all()
            stored = connection.execute(sa.select(sa.func.max(trajectories.c.id))).scalar() or 0
        seconds = max(now - min((row.created_at for row in rows), default=now), 1.0)
        return Rates(
            rollouts_per_second=len({row.rollout_id for row in rows}) / seconds,
            prompt_tokens_per_second=sum(row.prompt_tokens for row in rows) / seconds,
            response_tokens_per_second=sum(row.response_tokens for row in rows) / seconds,
            trajectories_stored=stored,
        )

    def queue_sizes(self) -> QueueSizes:
        """Return the numbers of waiting rollouts and of this policy's groups by state; missing states are 0."""
        waiting = (RolloutState.QUEUED, RolloutState.LEASED)
        rollouts_by_state = _sizes(rollouts.c.state).where(rollouts.c.state.in_(waiting))
        groups_by_state = _sizes(groups.c.state).where(
            groups.c.purpose == Purpose.TRAIN, groups.c.state.in_(ADMITTED_STATES), groups.c.policy == self.policy
        )
        with self._database.read() as connection:
            rollout_sizes = {row.state: row.size for row in connection.execute(rollouts_by_state)}
            group_sizes = {row.state: row.size for row in connection.execute(groups_by_state)}
        return QueueSizes(
            rollouts={state.value: rollout_sizes.get(state, 0) for state in waiting},
            groups={state.value: group_sizes.get(state, 0) for state in ADMITTED_STATES},
        )

    def unfinished_rollouts(self, purpose: Purpose) -> dict[str, int]:
        """Return the numbers of queued and leased rollouts of one purpose, by state."""
        waiting = (RolloutState.QUEUED, RolloutState.LEASED)
        of_purpose = _sizes(rollouts.c.state).where(rollouts.c.state.in_(waiting), rollouts.c.purpose == purpose)
        with self._database.read() as connection:
            sizes = {row.state: row.size for row in connection.execute(of_purpose)}
        return {state.value: sizes.get(state, 0) for state in waiting}

    def _family_stats(self, connection: Connection, family: str, window: int) -> FamilyStats:
        columns = (trajectories.c[name] for name in ("status", "success", "reward", "turns", "response_tokens"))
        newest = sa.select(*columns, groups.c.max_turns).join(groups, trajectories.c.group_id == groups.c.id)
        newest = newest.where(
            *_COUNTED, trajectories.c.family == family, trajectories.c.policy == self.policy
        ).order_by(trajectories.c.id.desc())
        rows = connection.execute(newest.limit(window)).all()
        limits_met = [row.max_turns for row in rows if _was_cut_off(row)]
        admitted = sa.select(families.c.train_groups).where(families.c.family == family)
        successful_turns = (
            connection.execute(succeeded(family, self.policy).limit(MOST_KNOWN_SUCCESSES)).scalars().all()
        )
        count = max(len(rows), 1)
        return FamilyStats(
            rollouts=len(rows),
            successes=sum(row.success for row in rows),
            mean_reward=sum(row.reward for row in rows) / count,
            mean_turns=sum(row.turns for row in rows) / count,
            mean_response_tokens=sum(row.response_tokens for row in rows) / count,
            truncated=len(limits_met),
            tightest_limit=min(limits_met, default=0),
            outcomes=_outcomes(connection, family, self.policy),
            groups_admitted=connection.execute(admitted).scalar() or 0,
            known_successes=len(successful_turns),
            longest_success=max(successful_turns, default=0),
        )


def _sizes(state: sa.Column[Any]) -> sa.Select[Any, int]:
    return sa.select(state, sa.func.count().label("size")).group_by(state)


def _was_cut_off(row: Any) -> bool:
    """Return whether a failed rollout hit the turn limit of its group. Limits of the environment do not count."""
    return row.status == Status.TRUNCATED_TURNS and not row.success and row.turns >= row.max_turns


def succeeded(family: str, policy: str) -> sa.Select[Any]:
    """Select the turns of the policy's successes in the family, largest first; served by an index of its own."""
    of_family = sa.select(trajectories.c.turns).where(
        *_COUNTED, trajectories.c.success, trajectories.c.family == family, trajectories.c.policy == policy
    )
    return of_family.order_by(trajectories.c.turns.desc())


def judged(family: str, policy: str) -> sa.Select[Any]:
    """Select the policy's judged training groups of the family with a countable member, newest first; uses an index."""
    columns = (groups.c[name] for name in ("id", "countable", "successes", "mixed", "judged_at_step", "max_turns"))
    mine = (groups.c.purpose == Purpose.TRAIN, groups.c.family == family, groups.c.policy == policy)
    of_family = sa.select(*columns).where(*mine)
    return of_family.where(groups.c.countable > sa.literal_column("0")).order_by(groups.c.id.desc())


def _outcomes(connection: Connection, family: str, policy: str) -> list[GroupOutcome]:
    return [
        GroupOutcome(
            countable=row.countable,
            successes=row.successes,
            mixed=row.mixed,
            judged_at_step=row.judged_at_step,
            max_turns=row.max_turns,
        )
        for row in connection.execute(judged(family, policy).limit(NEWEST_GROUPS))
    ]
