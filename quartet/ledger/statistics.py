"""Statistics that modules read often. The time to read them does not grow with the run."""

from collections import Counter
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.group_rows import ADMITTED_STATES
from quartet.ledger.rows import FamilyStats, GroupOutcome, QueueSizes, SinceCommit
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import IS_TRAINING, batches, families, group_sizes, groups, rollouts, trajectories
from quartet.ledger.values import read_value
from quartet.types import ACTIONS_LEFT, GENERATED, BatchState, GroupState, Purpose, RolloutState, Status

_COUNTED = (trajectories.c.purpose == Purpose.TRAIN, trajectories.c.counted)
NEWEST_GROUPS = 48
"""Maximum number of judged groups that `FamilyStats` holds, per family."""
MOST_KNOWN_SUCCESSES = 64
"""Maximum number of successes that `FamilyStats` counts, per family."""
PHASE_BEGAN_AT = "phase_began_at"
"""Key of the time at which the run entered its present phase, in seconds since 1970."""
JUDGED = (GroupState.TRAINABLE, GroupState.CLAIMED, GroupState.TRAINED, GroupState.DROPPED)
"""States of groups after the filters' verdict."""


class Statistics:
    """Statistics of task families, sizes of queues, and results since the newest train step."""

    def __init__(self, db: RunDatabase) -> None:
        self._db = db

    def families(self, window: int) -> dict[str, FamilyStats]:
        """Return the policy's training statistics of all admitted families, over the newest `window` countable rollouts
        of each."""
        with self._db.read() as connection:
            names = list(connection.execute(sa.select(families.c.family)).scalars())
            return {name: _family_stats(connection, name, self._db.policy, window) for name in names}

    def family(self, family: str, window: int) -> FamilyStats:
        """Return the training statistics of one family; zeros for a family that was never admitted."""
        with self._db.read() as connection:
            return _family_stats(connection, family, self._db.policy, window)

    def queue_sizes(self) -> QueueSizes:
        """Return the numbers of waiting rollouts and of this policy's groups by state; missing states are 0.

        Waiting rollouts are counted one by one: a module that decides something needs `groups_by_state`, or
        `Rollouts.count_queued`.
        """
        waiting = (RolloutState.QUEUED, RolloutState.LEASED)
        by_state = sa.select(rollouts.c.state, sa.func.count().label("size")).group_by(rollouts.c.state)
        with self._db.read() as connection:
            sizes = {row.state: row.size for row in connection.execute(by_state.where(rollouts.c.state.in_(waiting)))}
        return QueueSizes(
            rollouts={state.value: sizes.get(state, 0) for state in waiting}, groups=self.groups_by_state()
        )

    def groups_by_state(self) -> dict[str, int]:
        """Return the numbers of this policy's training groups that are admitted and not yet trained or dropped, by
        state; missing states are 0."""
        mine = group_sizes.c.policy == self._db.policy
        with self._db.read() as connection:
            rows = connection.execute(sa.select(group_sizes.c.state, group_sizes.c.groups).where(mine))
            sizes = {row.state: row.groups for row in rows}
        return {state.value: sizes.get(state, 0) for state in ADMITTED_STATES}

    def since_last_commit(self) -> SinceCommit:
        """Return the outcomes of the policy's groups and rollouts since its newest commit, or since training began or
        was resumed, if that was later."""
        policy = self._db.policy
        committed = (batches.c.policy == policy, batches.c.state == BatchState.COMMITTED)
        commit = sa.select(sa.func.max(batches.c.committed_at)).where(*committed)
        with self._db.read() as connection:
            committed_at = connection.execute(commit).scalar() or 0.0
            began_at = read_value(connection, PHASE_BEGAN_AT) or 0.0
            since = max(committed_at, began_at)
            verdicts = sa.select(groups.c.reason).where(
                IS_TRAINING, groups.c.policy == policy, groups.c.state.in_(JUDGED), groups.c.closed_at > since
            )
            ended = sa.select(trajectories.c.status).where(
                trajectories.c.purpose == Purpose.TRAIN,
                trajectories.c.policy == policy,
                trajectories.c.created_at > since,
            )
            return SinceCommit(
                verdicts=dict(Counter(connection.execute(verdicts).scalars())),
                statuses=dict(Counter(connection.execute(ended).scalars())),
                solved=_solved_without_help(connection, policy, since),
                overtaken=_overtaken(connection, policy, since),
                resumed=began_at > committed_at > 0,
            )


def _overtaken(connection: Connection, policy: str, since: float) -> int:
    """Return the number of unjudged groups that had been admitted when the first group after `since` (seconds)
    closed."""
    mine = (IS_TRAINING, groups.c.policy == policy)
    first = sa.select(sa.func.min(groups.c.closed_at)).where(
        *mine, groups.c.state.in_(JUDGED), groups.c.closed_at > since
    )
    waiting = sa.select(sa.func.count()).where(
        *mine, groups.c.state.in_([GroupState.OPEN, GroupState.CLOSED]), groups.c.created_at < first.scalar_subquery()
    )
    return connection.execute(waiting).scalar_one()


def _solved_without_help(connection: Connection, policy: str, since: float) -> int:
    """Return the number of groups dropped since `since` (seconds) whose countable members all succeeded, without
    guidance and from the task's own beginning."""
    guided = sa.exists().where(rollouts.c.group_id == groups.c.id, rollouts.c.guided)
    solved = sa.select(groups.c.params).where(
        *(IS_TRAINING, groups.c.policy == policy, groups.c.state == GroupState.DROPPED),
        *(groups.c.closed_at > since, groups.c.countable > 0, groups.c.successes == groups.c.countable),
        ~guided,
    )
    return sum(not {ACTIONS_LEFT, GENERATED} & {*params} for params in connection.execute(solved).scalars())


def _family_stats(connection: Connection, family: str, policy: str, window: int) -> FamilyStats:
    columns = (trajectories.c[name] for name in ("status", "success", "reward", "turns", "response_tokens"))
    newest = sa.select(*columns, groups.c.max_turns).join(groups, trajectories.c.group_id == groups.c.id)
    newest = newest.where(*_COUNTED, trajectories.c.family == family, trajectories.c.policy == policy).order_by(
        trajectories.c.id.desc()
    )
    rows = connection.execute(newest.limit(window)).all()
    limits_met = [row.max_turns for row in rows if _was_cut_off(row)]
    admitted = sa.select(families.c.train_groups).where(families.c.family == family)
    successful_turns = connection.execute(succeeded(family, policy).limit(MOST_KNOWN_SUCCESSES)).scalars().all()
    count = max(len(rows), 1)
    return FamilyStats(
        rollouts=len(rows),
        successes=sum(row.success for row in rows),
        mean_reward=sum(row.reward for row in rows) / count,
        mean_turns=sum(row.turns for row in rows) / count,
        mean_response_tokens=sum(row.response_tokens for row in rows) / count,
        truncated=len(limits_met),
        tightest_limit=min(limits_met, default=0),
        outcomes=_outcomes(connection, family, policy),
        groups_admitted=connection.execute(admitted).scalar() or 0,
        known_successes=len(successful_turns),
        longest_success=max(successful_turns, default=0),
    )


def _was_cut_off(row: Any) -> bool:
    """Return whether a failed rollout hit the turn limit of its group. Limits of the environment do not count."""
    return row.status == Status.TRUNCATED_TURNS and not row.success and row.turns >= row.max_turns


def succeeded(family: str, policy: str) -> sa.Select[Any]:
    """Select the turns of the policy's successes in the family, largest first. The query has a separate index."""
    of_family = sa.select(trajectories.c.turns).where(
        *_COUNTED, trajectories.c.success, trajectories.c.family == family, trajectories.c.policy == policy
    )
    return of_family.order_by(trajectories.c.turns.desc())


def judged(family: str, policy: str) -> sa.Select[Any]:
    """Select the policy's judged training groups of the family with a countable member, newest first; uses an index."""
    names = ("id", "countable", "successes", "mixed", "judged_at_step", "max_turns", "params")
    columns = (groups.c[name] for name in names)
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
            params=row.params,
        )
        for row in connection.execute(judged(family, policy).limit(NEWEST_GROUPS))
    ]
