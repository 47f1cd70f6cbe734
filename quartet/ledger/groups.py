"""The group state machine: open -> closed -> trainable -> claimed -> trained, or -> dropped with a reason.

The first half: admission, closing, and the filters' verdict. Claiming and training are in `batches.py`.

A group compares trajectories of one policy. Where several policies of a run are trained, each has a group for the same
rollouts: the first has the rollouts, the others stand beside it (`rollouts_of`) and open and close with it. From the
verdict on each goes its own way: one policy may train on its group while another one's waits, or is dropped.
"""

from collections.abc import Iterable, Mapping

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.errors import LedgerError
from quartet.ledger.cancelling import Cancelling
from quartet.ledger.policies import Policies
from quartet.ledger.pool import Pool
from quartet.ledger.schema import batches, families, groups, rollouts, trajectories
from quartet.ledger.version_list import read_versions, version_list
from quartet.types import BatchState, GroupState, Purpose, ReplayRule, RolloutPlan, RolloutState

ADMITTED_STATES = (GroupState.OPEN, GroupState.CLOSED, GroupState.TRAINABLE, GroupState.CLAIMED)
"""Training groups in these states hold an admission slot."""

_HAS_ROLLOUTS = groups.c.rollouts_of.is_(None)
"""It does not stand beside another policy's group."""
_OWN = sa.and_(trajectories.c.group_id == groups.c.id, trajectories.c.counted)
_HAS_ENOUGH = sa.and_(
    groups.c.enough < groups.c.num_rollouts,
    sa.select(sa.func.count(trajectories.c.rollout_id.distinct())).where(_OWN).scalar_subquery() >= groups.c.enough,
)
_UNFINISHED = sa.exists().where(rollouts.c.group_id == groups.c.id, rollouts.c.state != RolloutState.FINISHED)
ROUND_HAS_ENDED = sa.or_(~_UNFINISHED, _HAS_ENOUGH)
"""All members of a group are finished, or enough of them countable."""
_STEPS = sa.select(sa.func.coalesce(sa.func.max(batches.c.train_step), 0))
_OUTCOME = {
    "countable": sa.select(sa.func.count()).where(_OWN).scalar_subquery(),
    "successes": sa.select(sa.func.count()).where(_OWN, trajectories.c.success).scalar_subquery(),
    "mixed": sa.select(sa.func.count(trajectories.c.reward.distinct()) > 1).where(_OWN).scalar_subquery(),
    "judged_at_step": _STEPS.where(
        batches.c.state == BatchState.COMMITTED, batches.c.policy == groups.c.policy
    ).scalar_subquery(),
}
"""Written with the verdict: what control asks of a group later on."""


class Groups(Cancelling, Pool, Policies):
    def admit(self, plan: RolloutPlan) -> int:
        """Write a group and its queued rollouts; returns the group's id. Groups of other policies stand beside it."""
        with self._database.write() as connection:
            group_id = self._admit(connection, plan)
        self.doorbells.ring("worker")
        return group_id

    def admit_if(self, plan: RolloutPlan, *, versions_behind: int, settled: bool) -> bool:
        """Like `admit`; False, and no group, once an engine serves a policy that is more than `versions_behind` behind
        the newest, or, with `settled`, while one has neither taken nor refused the newest."""
        with self._database.write() as connection:
            in_pace = self._versions_behind(connection) <= versions_behind
            admitted = in_pace and (not settled or self._latest_is_settled(connection))
            if admitted:
                self._admit(connection, plan)
        if admitted:
            self.doorbells.ring("worker")
        return admitted

    def has_older_unfinished(self) -> bool:
        """Return whether a training group begun under an older policy than the served one is still open or closed."""
        unfinished = (groups.c.purpose == Purpose.TRAIN, groups.c.state.in_((GroupState.OPEN, GroupState.CLOSED)))
        with self._database.read() as connection:
            older = [
                sa.and_(groups.c.policy == ledger.policy, groups.c.oldest_version < ledger._served_version(connection))
                for ledger in self.each()
            ]
            query = sa.select(groups.c.id).where(*unfinished, sa.or_(*older)).limit(1)
            return connection.execute(query).first() is not None

    def groups_ahead(self) -> int:
        """Training groups that are open, waiting or in training: those that hold an admission slot. Of the policy with
        the most, among those that may still train."""
        ahead = (groups.c.purpose == Purpose.TRAIN, groups.c.state.in_(ADMITTED_STATES))
        query = sa.select(groups.c.policy, sa.func.count().label("size")).where(*ahead).group_by(groups.c.policy)
        with self._database.read() as connection:
            training = [ledger.policy for ledger in self.each() if ledger._may_train(connection)]
            sizes = {row.policy: row.size for row in connection.execute(query)}
        return max((sizes.get(policy, 0) for policy in training or self.trained), default=0)

    def groups_admitted(self) -> int:
        """Return the number of groups ever admitted, the counter that task samplers draw from."""
        demonstrated = sa.select(sa.func.count()).where(groups.c.purpose == Purpose.DEMONSTRATION)
        beside = sa.select(sa.func.count()).where(groups.c.rollouts_of.is_not(None))
        others = demonstrated.scalar_subquery() + beside.scalar_subquery()
        query = sa.select(sa.func.coalesce(sa.func.max(groups.c.id), 0) - others)
        with self._database.read() as connection:
            return connection.execute(query).scalar_one()

    def closable(self, deadline_seconds: float) -> list[int]:
        """Open groups whose members are all finished, or enough of them countable; and training groups whose first
        lease is `deadline_seconds` ago."""
        begun_before = self.now() - deadline_seconds
        overdue = sa.and_(groups.c.purpose == Purpose.TRAIN, groups.c.leased_at <= begun_before)
        return self._group_ids(list(Purpose), GroupState.OPEN, sa.or_(ROUND_HAS_ENDED, overdue), _HAS_ROLLOUTS)

    def ended_rounds(self) -> list[int]:
        """Open training groups whose members are all finished, or enough of them countable: the allocator may add a
        round to them, or they are closed."""
        return self._group_ids([Purpose.TRAIN], GroupState.OPEN, ROUND_HAS_ENDED, _HAS_ROLLOUTS)

    def close_group(self, group_id: int) -> None:
        """Close an open group and those beside it: members that are not finished are cancelled with their forks; what
        they append later is `late`.

        Raises `LedgerError` when the group is not open.
        """
        with self._database.write() as connection:
            cancelled = self._close(connection, group_id)
        if cancelled:
            self.doorbells.ring("worker")

    def closed_groups(self) -> list[int]:
        """Training groups that wait for the filters' verdict, oldest first."""
        return self._group_ids([Purpose.TRAIN], GroupState.CLOSED)

    def make_trainable(
        self,
        group_id: int,
        kept: Iterable[int],
        min_countable: int,
        *,
        excluded: Mapping[int, str] | None = None,
        replayed: Mapping[int, ReplayRule] | None = None,
    ) -> None:
        """The filters let a closed group pass.

        `kept` are rollout ids of its own members; the other countable ones stay stored, marked with the reason that
        `excluded` gives (rollout id -> reason). `replayed` are stored rollouts that join. Should blobs be lost later,
        the group is dropped when one of these or all but `min_countable` of its own are gone.
        """
        with self._database.write() as connection:
            self._exclude(connection, group_id, list(kept), excluded or {})
            own = (trajectories.c.group_id == group_id, trajectories.c.counted, trajectories.c.excluded == "")
            texts = connection.execute(sa.select(trajectories.c.versions).where(*own)).scalars()
            versions = [version for text in texts for version in read_versions(text)]
            self._move(
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
            self._join(connection, group_id, replayed or {})
        self.doorbells.ring("trainer", "worker", "engine")

    def drop_group(self, group_id: int, reason: str) -> None:
        """The filters refuse a closed group."""
        with self._database.write() as connection:
            self._move(connection, group_id, GroupState.CLOSED, GroupState.DROPPED, **_OUTCOME, reason=reason)
        self.doorbells.ring("trainer", "engine")  # a batch may have waited for it

    def cancel_unfinished(self) -> int:
        """Training has ended: drop what is open, evaluations too, reason `training_ended`; returns how many groups.

        Their unfinished rollouts are cancelled. Trainable groups stay, a resumed run may train on them.
        """
        open_groups = (groups.c.state == GroupState.OPEN,)
        dropped = {"state": GroupState.DROPPED, "reason": "training_ended", "closed_at": self._clock()}
        with self._database.write() as connection:
            ids = list(connection.execute(sa.select(groups.c.id).where(*open_groups)).scalars())
            self._cancel(connection, rollouts.c.group_id.in_(ids))
            connection.execute(sa.update(groups).where(groups.c.id.in_(ids)).values(dropped))
        return len(ids)

    def _close(self, connection: Connection, group_id: int) -> int:
        """Return how many members were cancelled."""
        has_enough = sa.select(groups.c.id).where(groups.c.id == group_id, _HAS_ENOUGH)
        in_time = connection.execute(has_enough).first() is not None
        self._move(connection, group_id, GroupState.OPEN, GroupState.CLOSED, closed_at=self._clock())
        beside = sa.update(groups).where(groups.c.rollouts_of == group_id, groups.c.state == GroupState.OPEN)
        connection.execute(beside.values(state=GroupState.CLOSED, closed_at=self._clock()))
        cancelled = self._cancel(connection, rollouts.c.group_id == group_id)
        if cancelled and not in_time:
            self._event(connection, "group_deadline", group_id=group_id, cancelled=cancelled)
        return cancelled

    def _exclude(self, connection: Connection, group_id: int, kept: list[int], reasons: Mapping[int, str]) -> None:
        own = (trajectories.c.group_id == group_id, trajectories.c.counted)
        left_out = sa.update(trajectories).where(*own, trajectories.c.rollout_id.not_in(kept))
        connection.execute(left_out.values(excluded="filter"))
        for rollout_id, reason in reasons.items():
            member = sa.update(trajectories).where(*own, trajectories.c.rollout_id == rollout_id)
            connection.execute(member.values(excluded=reason))

    def _admit(self, connection: Connection, plan: RolloutPlan) -> int:
        task, training = plan.task, plan.purpose is Purpose.TRAIN
        if training:
            self._count_admission(connection, task.family)
        group = {
            "purpose": plan.purpose,
            "policy": self.policy,
            "tag": plan.tag,
            "env": task.env,
            "family": task.family,
            "task_seed": task.seed,
            "params": task.params,
            "num_rollouts": plan.num_rollouts,
            "enough": plan.num_rollouts if plan.enough is None else plan.enough,
            "max_turns": plan.max_turns,
            "temperature": plan.temperature,
            "state": GroupState.OPEN,
            "oldest_version": self._served_version(connection) if training else None,
            "created_at": self._clock(),
        }
        group_id: int = connection.execute(sa.insert(groups).values(group).returning(groups.c.id)).scalar_one()
        queued = {"group_id": group_id, "purpose": plan.purpose, "state": RolloutState.QUEUED}
        connection.execute(sa.insert(rollouts), [{**queued, "index": index} for index in range(plan.num_rollouts)])
        for ledger in self.each() if training else ():
            if ledger.policy != self.policy:
                own = {"policy": ledger.policy, "oldest_version": ledger._served_version(connection)}
                connection.execute(sa.insert(groups).values(group | own | {"rollouts_of": group_id}))
        return group_id

    def _count_admission(self, connection: Connection, family: str) -> None:
        more = sa.update(families).where(families.c.family == family).values(train_groups=families.c.train_groups + 1)
        if not connection.execute(more).rowcount:
            connection.execute(sa.insert(families).values(family=family, train_groups=1))

    def _group_ids(self, purposes: list[Purpose], state: GroupState, *conditions: sa.ColumnElement[bool]) -> list[int]:
        query = sa.select(groups.c.id).where(groups.c.purpose.in_(purposes), groups.c.state == state, *conditions)
        with self._database.read() as connection:
            return list(connection.execute(query.order_by(groups.c.id)).scalars())

    def _move(
        self, connection: Connection, group_id: int, before: GroupState, after: GroupState, **values: object
    ) -> None:
        move = sa.update(groups).where(groups.c.id == group_id, groups.c.state == before)
        if not connection.execute(move.values(state=after, **values)).rowcount:
            raise LedgerError(f"group {group_id} is not {before}, so it cannot become {after}")
