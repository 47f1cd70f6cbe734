"""What the run keeps on disk: bytes of blobs, and the screenshots that may go."""

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.data.ledger.part import LedgerPart
from quartet.data.schema import batches, blobs, groups, pool, replays, rollouts, trajectories
from quartet.on_progress import OnProgress, nobody_watches
from quartet.types import GroupState, Purpose, RolloutState

_IS_OVER = sa.or_(
    groups.c.state.in_((GroupState.TRAINED, GroupState.DROPPED)),
    sa.and_(groups.c.purpose != Purpose.TRAIN, groups.c.state == GroupState.CLOSED),
)
_POOLED = sa.select(pool.c.id).where(pool.c.rollout_id == trajectories.c.rollout_id, ~pool.c.outdated).exists()
_JOINED = groups.alias("joined")


def _may_be_trained(table: sa.FromClause, checkpoint_step: int) -> sa.ColumnElement[bool]:
    """Whether a group waits for a train step, or returns to the queue should the run go back to `checkpoint_step`."""
    step = sa.select(batches.c.train_step).where(batches.c.id == table.c.batch_id).scalar_subquery()
    undone = sa.and_(table.c.state == GroupState.TRAINED, step > checkpoint_step)
    return sa.or_(table.c.state.in_((GroupState.TRAINABLE, GroupState.CLAIMED)), undone)


def _awaited(checkpoint_step: int) -> sa.ColumnElement[bool]:
    """Whether a stored success has joined such a group, whether the pool still has it or not."""
    joined = sa.select(replays.c.id).join(_JOINED, replays.c.group_id == _JOINED.c.id)
    return joined.where(
        replays.c.trajectory_id == trajectories.c.id, _may_be_trained(_JOINED, checkpoint_step)
    ).exists()


class DiskSpace(LedgerPart):
    def blob_bytes(self, after: int = 0) -> tuple[int, int]:
        """Bytes of the blobs of all trajectories with an id above `after`, and the highest id that was counted.

        So who asks again and again reads each row once. A blob that two rows share counts twice.
        """
        size = trajectories.c.blob_bytes + sa.case(
            (trajectories.c.screenshots_blob.is_not(None), trajectories.c.screenshots_bytes), else_=0
        )
        with self._database.read() as connection:
            counted = sa.select(sa.func.sum(size), sa.func.max(trajectories.c.id)).where(trajectories.c.id > after)
            total, last = connection.execute(counted).one()
        return int(total or 0), last or after

    def shorten_log(self) -> bool:
        """Keep the database's log bounded. False, with an event, when a reader has held it for too long."""
        if shortened := self._database.shorten_log():
            return shortened
        self.event("log_held", advice="a program has been reading the ledger in one transaction: close it")
        return False

    def collect_garbage(self, on_progress: OnProgress = nobody_watches) -> int:
        """Delete the blobs that no trajectory and no unfinished rollout names; return how many. For a run at rest.

        Large blobs are written before their row is committed: those of a worker at work would go too.
        """
        names = (
            sa.select(trajectories.c.blob, trajectories.c.screenshots_blob),
            sa.select(rollouts.c.partial).where(rollouts.c.state != RolloutState.FINISHED),
        )
        with self._database.read() as connection:
            used = {bytes.fromhex(name) for query in names for row in connection.execute(query) for name in row if name}
        with self._database.write() as connection:
            stored = {row.digest for row in connection.execute(sa.select(blobs.c.digest))}
            unused = [digest.hex() for digest in stored - used]
            unused += [name for name in self._store.blobs.files.digests() if bytes.fromhex(name) not in used]
            for done, name in enumerate(unused, start=1):
                self._store.blobs.delete(connection, [name])
                on_progress(done, len(unused))
        return len(unused)

    def drop_records(
        self,
        after: int,
        limit: int,
        *,
        created_before: float | None,
        version_below: int | None,
        checkpoint_step: int,
    ) -> tuple[int, int]:
        """Delete the records and pictures of old rollouts whose groups are over; their rows stay, without a blob.

        Looks at the oldest `limit` trajectories with an id above `after`. Old means created before a time (Unix
        seconds), or with all tokens of versions below one. Demonstrations, the success pool's entries, what a
        group to be trained has been joined by and what was trained after the train step `checkpoint_step` stay, and
        large records wait for `collect_garbage`. Returns the bytes deleted and the id up to which everything is old,
        so that a caller who goes on from there reads each row once.
        """
        page = (
            sa.select(
                trajectories,
                sa.and_(_IS_OVER, ~_may_be_trained(groups, checkpoint_step)).label("over"),
                sa.or_(_POOLED, _awaited(checkpoint_step)).label("needed"),
            )
            .join(groups, trajectories.c.group_id == groups.c.id)
            .where(trajectories.c.id > after)
            .order_by(trajectories.c.id)
            .limit(limit)
        )
        freed = 0
        with self._database.write() as connection:
            for row in connection.execute(page).all():
                newest = row.newest_version
                aged = created_before is not None and row.created_at < created_before
                outlived = version_below is not None and newest is not None and newest < version_below
                if not (aged or outlived) or not row.over:
                    break
                after = row.id
                if row.needed or row.purpose == Purpose.DEMONSTRATION or not row.blob:
                    continue
                gone = {"blob": "", "blob_bytes": 0, "screenshots_blob": None}
                connection.execute(sa.update(trajectories).where(trajectories.c.id == row.id).values(gone))
                freed += row.blob_bytes + (row.screenshots_bytes if row.screenshots_blob else 0)
                self._store.blobs.release(connection, row.blob)
                self._delete_unshared(connection, {row.screenshots_blob} - {None})
        return freed, after

    def _delete_unshared(self, connection: Connection, pictures: set[str]) -> None:
        """Equal pictures share a blob: it goes with the last row that points to it."""
        shared = sa.select(trajectories.c.screenshots_blob).where(trajectories.c.screenshots_blob.in_(pictures))
        self._store.blobs.delete(connection, pictures - set(connection.execute(shared).scalars()))

    def drop_screenshots(self, limit: int) -> int:
        """Delete the screenshots of the oldest `limit` rollouts whose groups are over; returns how many bytes.

        Over means trained, dropped, or closed and never to be trained: evaluations, demonstrations.
        """
        oldest = (
            sa.select(trajectories.c.id, trajectories.c.screenshots_blob, trajectories.c.screenshots_bytes)
            .join(groups, trajectories.c.group_id == groups.c.id)
            .where(trajectories.c.screenshots_blob.is_not(None), _IS_OVER)
            .order_by(trajectories.c.id)
            .limit(limit)
        )
        with self._database.write() as connection:
            rows = connection.execute(oldest).all()
            ids = [row.id for row in rows]
            connection.execute(sa.update(trajectories).where(trajectories.c.id.in_(ids)).values(screenshots_blob=None))
            self._delete_unshared(connection, {row.screenshots_blob for row in rows})
        return sum(row.screenshots_bytes for row in rows)
