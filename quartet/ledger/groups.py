"""The group state machine: open -> closed -> trainable -> claimed -> trained, or -> dropped with a reason.

This file has admission, growth, closing, and the filters' verdict. Claiming and training are in `batches.py`.

A group compares trajectories of one policy. If several policies of a run are trained, each has a group for the same
rollouts. The first group owns the rollouts. The others are beside it (`rollouts_of`), and open and close with it. After
the filters' verdicts the groups are independent: one policy may train on its group while the group of another policy
waits or is dropped.
"""

from collections.abc import Callable, Iterable, Mapping

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.errors import LedgerError
from quartet.ledger.beginnings import discard
from quartet.ledger.cancelling import drop_groups
from quartet.ledger.group_rows import (
    ADMITTED_STATES,
    COUNTED,
    IS_OPEN,
    ROUND_HAS_ENDED,
    admit_group,
    close_group,
    move_group,
)
from quartet.ledger.growth import ended_round, grow, most_have_failed, next_round, packed_child
from quartet.ledger.members import MEMBERS, load_members, mark_damaged, task_of
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import batches, group_sizes, groups, trajectories
from quartet.ledger.serving import all_settled, most_versions_behind, served_version
from quartet.ledger.success_pool import join_group
from quartet.ledger.train_steps import may_train
from quartet.ledger.version_list import read_versions, version_list
from quartet.types import BatchState, Group, GroupState, Purpose, ReplayRule, RolloutPlan, Round

TRAINING_ENDED = "training_ended"
"""Drop reason of a group that was open when training ended."""
_HAS_ROLLOUTS = groups.c.rollouts_of.is_(None)
"""Condition that a group owns its rollouts: it is not beside another policy's group."""
_STEPS = sa.select(sa.func.coalesce(sa.func.max(batches.c.train_step), 0))
_OUTCOME = {
    "countable": sa.select(sa.func.count()).where(COUNTED).scalar_subquery(),
    "successes": sa.select(sa.func.count()).where(COUNTED, trajectories.c.success).scalar_subquery(),
    "mixed": sa.select(sa.func.count(trajectories.c.reward.distinct()) > 1).where(COUNTED).scalar_subquery(),
    "judged_at_step": _STEPS.where(
        batches.c.state == BatchState.COMMITTED, batches.c.policy == groups.c.policy
    ).scalar_subquery(),
}
"""Columns of a group that are written with the verdict, for control to read later."""


class Groups:
    """Groups of rollouts: admitted, closed, judged, and read with their members."""

    def __init__(self, db: RunDatabase) -> None:
        self._db = db

    def admit(self, plan: RolloutPlan) -> int:
        """Write a group and its queued rollouts; return the group's id. Groups of other policies are beside it."""
        with self._db.write() as connection:
            group_id = admit_group(self._db, connection, plan)
        self._db.notifier.notify("worker")
        return group_id

    def admit_if(self, plan: RolloutPlan, *, versions_behind: int, settled: bool) -> bool:
        """Admit a group and return True, or return False if an engine is too far behind the newest policy.

        An engine is too far behind if it serves a policy more than `versions_behind` train steps older than the newest
        one or, with `settled`, if it has neither loaded nor refused the newest one.
        """
        db = self._db
        with db.write() as connection:
            in_pace = most_versions_behind(connection, db.trained) <= versions_behind
            admitted = in_pace and (not settled or all_settled(connection, (*db.trained, *db.frozen)))
            if admitted:
                admit_group(db, connection, plan)
        if admitted:
            db.notifier.notify("worker")
        return admitted

    def has_older_unfinished(self) -> bool:
        """Return whether an unfinished training group (open or closed) began with an older policy than the served
        one."""
        unfinished = (groups.c.purpose == Purpose.TRAIN, groups.c.state.in_((GroupState.OPEN, GroupState.CLOSED)))
        with self._db.read() as connection:
            older = [
                sa.and_(groups.c.policy == policy, groups.c.oldest_version < served_version(connection, policy))
                for policy in self._db.trained
            ]
            query = sa.select(groups.c.id).where(*unfinished, sa.or_(*older)).limit(1)
            return connection.execute(query).first() is not None

    def ahead(self) -> int:
        """Return the number of training groups that are admitted and not yet trained or dropped.

        This is the maximum over the policies that may still train.
        """
        sums = sa.select(group_sizes.c.policy, sa.func.sum(group_sizes.c.groups).label("size"))
        query = sums.where(group_sizes.c.state.in_(ADMITTED_STATES)).group_by(group_sizes.c.policy)
        with self._db.read() as connection:
            training = [policy for policy in self._db.trained if may_train(connection, policy)]
            sizes = {row.policy: row.size for row in connection.execute(query)}
        return max((sizes.get(policy, 0) for policy in training or self._db.trained), default=0)

    def admitted(self) -> int:
        """Return the number of groups ever admitted, the counter that task samplers draw from."""
        demonstrated = sa.select(sa.func.count()).where(groups.c.purpose == Purpose.DEMONSTRATION)
        # Each further policy has as many groups as the first one, for the same rollouts.
        beside = sa.select(sa.func.coalesce(sa.func.sum(group_sizes.c.groups), 0))
        beside = beside.where(group_sizes.c.policy != self._db.trained[0])
        others = demonstrated.scalar_subquery() + beside.scalar_subquery()
        query = sa.select(sa.func.coalesce(sa.func.max(groups.c.id), 0) - others)
        with self._db.read() as connection:
            return int(connection.execute(query).scalar_one())

    def closable(self, deadline_seconds: float) -> list[int]:
        """Return the open groups that may close: those whose round has ended, and training groups whose first lease
        began `deadline_seconds` ago."""
        with self._db.read() as connection:
            begun_before = self._db.now(connection) - deadline_seconds
        overdue = sa.and_(IS_OPEN, groups.c.purpose == Purpose.TRAIN, groups.c.leased_at <= begun_before)
        return sorted({*self._ids(IS_OPEN, ROUND_HAS_ENDED, _HAS_ROLLOUTS), *self._ids(overdue, _HAS_ROLLOUTS)})

    def ended_rounds(self) -> list[int]:
        """Return the open training groups whose round has ended: the allocator may add a round to such a group, or the
        group closes."""
        return self._ids(IS_OPEN, groups.c.purpose == Purpose.TRAIN, ROUND_HAS_ENDED, _HAS_ROLLOUTS)

    def end_round(self, group_id: int, more: Callable[[Group], Round]) -> bool:
        """Add the result of `more` to an open group whose round has ended, or close the group if the result is empty.

        The group closes without a call of `more` if most of its rollouts have failed (`most_have_failed`).
        Return whether the group grew. This is one transaction. `more` is called before it, and again if the group's
        members have changed in between. A group that waits for members, because a running one was forked, and a group
        that is not open are not changed. Raises `LedgerError` if a fork names a rollout of another group, a rollout
        without a record, or a call that the rollout does not have.
        """
        grew = None
        while grew is None:
            grew = self._end_round(group_id, more)
        self._db.notifier.notify("worker", "manager")
        return grew

    def extend(self, group_id: int, more: Round) -> bool:
        """Add rollouts to an open group. Return False, and add none, once it has closed. Raises like `end_round`."""
        wanted = [packed_child(self._db, group_id, one) for one in more]
        with self._db.write() as connection:
            grown = grow(self._db, connection, group_id, wanted, next_round(group_id))
        if not grown:
            discard(self._db, wanted)
        self._db.notifier.notify("worker")
        return bool(grown)

    def close(self, group_id: int) -> None:
        """Close an open group and those beside it. Unfinished members are cancelled with their forks; trajectories that
        they append later are `late`. A group that is not open is left as it is: the end of training drops open groups,
        also between two transactions of the manager."""
        is_open = sa.select(groups.c.id).where(groups.c.id == group_id, IS_OPEN)
        with self._db.write() as connection:
            cancelled = close_group(self._db, connection, group_id) if connection.execute(is_open).first() else 0
        if cancelled:
            self._db.notifier.notify("worker")

    def closed(self) -> list[int]:
        """Return the training groups that wait for the filters' verdict, oldest first."""
        return self._ids(groups.c.purpose == Purpose.TRAIN, groups.c.state == GroupState.CLOSED)

    def load(self, group_id: int) -> Group:
        """Return a group with its countable members, without pictures.

        A member with a damaged blob is left out and marked: status `damaged`, and an event.
        """
        with self._db.read() as connection:
            row = connection.execute(sa.select(groups).where(groups.c.id == group_id)).one()
            rows = connection.execute(MEMBERS.where(trajectories.c.group_id == group_id)).all()
        members, damaged = load_members(self._db.store, rows)
        if damaged:
            with self._db.write() as connection:
                mark_damaged(self._db, connection, damaged)
        return Group(group_id=group_id, task=task_of(row), members=members, policy=row.policy)

    def make_trainable(
        self,
        group_id: int,
        kept: Iterable[int],
        min_countable: int,
        *,
        excluded: Mapping[int, str] | None = None,
        replayed: Mapping[int, ReplayRule] | None = None,
    ) -> None:
        """Make a closed group trainable, after it passed the filters.

        `kept` are rollout ids of the group's own members. The group's other countable members stay stored, marked with
        their reason in `excluded` (rollout id -> reason). `replayed` are stored rollouts that join the group. If blobs
        are lost later, the group is dropped once a joined rollout is lost or fewer than `min_countable` of its own
        members are left.
        """
        with self._db.write() as connection:
            _exclude(connection, group_id, list(kept), excluded or {})
            own = (trajectories.c.group_id == group_id, trajectories.c.counted, trajectories.c.excluded == "")
            texts = connection.execute(sa.select(trajectories.c.versions).where(*own)).scalars()
            versions = [version for text in texts for version in read_versions(text)]
            move_group(
                connection,
                group_id,
                GroupState.CLOSED,
                GroupState.TRAINABLE,
                **_OUTCOME,
                min_countable=min_countable,
                oldest_version=min(versions, default=None),
                newest_version=max(versions, default=None),
                versions=version_list(versions),
            )
            join_group(connection, self._db.policy, group_id, replayed or {})
        self._db.notifier.notify("trainer", "worker", "engine")

    def drop(self, group_id: int, reason: str) -> None:
        """Drop a closed group that the filters refuse."""
        with self._db.write() as connection:
            move_group(connection, group_id, GroupState.CLOSED, GroupState.DROPPED, **_OUTCOME, reason=reason)
        self._db.notifier.notify("trainer", "engine")  # a batch may have waited for this group

    def cancel_unfinished(self) -> int:
        """Drop all open groups at the end of training, reason `TRAINING_ENDED`; return their number.

        This cuts off an evaluation during training; no other one is open (`first_evaluation`). Unfinished rollouts are
        cancelled. Trainable groups stay, since a resumed run may train on them.
        """
        return drop_groups(self._db, groups.c.state == GroupState.OPEN, reason=TRAINING_ENDED)

    def _end_round(self, group_id: int, more: Callable[[Group], Round]) -> bool | None:
        """Return None if the group has changed since `more` was called."""
        with self._db.read() as connection:
            seen = ended_round(connection, group_id)
            hopeless = most_have_failed(connection, group_id)
        if seen is None:
            return False
        round_ = () if hopeless else more(self.load(group_id))
        wanted = [packed_child(self._db, group_id, one) for one in round_]
        queued = False
        try:
            with self._db.write() as connection:
                if ended_round(connection, group_id) != seen:
                    return None
                if wanted and not grow(self._db, connection, group_id, wanted, next_round(group_id)):
                    raise LedgerError(f"group {group_id} is not open, so it cannot grow")
                if not wanted:
                    close_group(self._db, connection, group_id)
            queued = True
        finally:
            if not queued:
                discard(self._db, wanted)
        return bool(wanted)

    def _ids(self, *conditions: sa.ColumnElement[bool]) -> list[int]:
        query = sa.select(groups.c.id).where(*conditions)
        with self._db.read() as connection:
            return list(connection.execute(query.order_by(groups.c.id)).scalars())


def _exclude(connection: Connection, group_id: int, kept: list[int], reasons: Mapping[int, str]) -> None:
    own = (trajectories.c.group_id == group_id, trajectories.c.counted)
    left_out = sa.update(trajectories).where(*own, trajectories.c.rollout_id.not_in(kept))
    connection.execute(left_out.values(excluded="filter"))
    for rollout_id, reason in reasons.items():
        member = sa.update(trajectories).where(*own, trajectories.c.rollout_id == rollout_id)
        connection.execute(member.values(excluded=reason))
