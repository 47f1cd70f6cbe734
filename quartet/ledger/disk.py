"""Disk usage of the run's blobs, and deletion of blobs and records.

References to pictures and to beginnings of children are deleted first, and blobs without references in a later
transaction. A crash in between leaves an unreferenced blob for `Disk.collect_garbage`.
"""

import sqlalchemy as sa

from quartet.ledger.beginnings import delete_unused
from quartet.ledger.pictures import drop_references, is_needed, is_over, picture_bytes
from quartet.ledger.run_database import RunDatabase
from quartet.ledger.schema import HAS_BEGINNING, blobs, groups, pictures, rollouts, trajectories
from quartet.on_progress import OnProgress, no_progress
from quartet.types import Purpose, RolloutState


class Disk:
    """Disk space of the run's blobs: count it, and free it."""

    def __init__(self, db: RunDatabase) -> None:
        self._db = db

    def blob_bytes(self, after: int = 0) -> tuple[int, int]:
        """Return the bytes of the blobs of all trajectories with an id above `after`, and the highest id counted.

        Passing that id as the next `after` reads each row once. A picture counts once; a record that two rows share
        counts twice.
        """
        with self._db.write() as connection:  # no other write is open, so no row with a lower id appears later
            last = connection.execute(sa.select(sa.func.max(trajectories.c.id))).scalar() or after
        sizes = sa.select(sa.func.sum(trajectories.c.blob_bytes)).where(trajectories.c.id.between(after + 1, last))
        with self._db.read() as connection:
            total = connection.execute(sizes).scalar()
            return int(total or 0) + picture_bytes(connection, after, last), last

    def beginning_bytes(self) -> int:
        """Return the bytes of the stored beginnings of forked rollouts (children)."""
        different = sa.select(rollouts.c.beginning, rollouts.c.beginning_bytes).where(HAS_BEGINNING).distinct()
        with self._db.read() as connection:
            total = sa.select(sa.func.sum(different.subquery().c.beginning_bytes))
            return int(connection.execute(total).scalar() or 0)

    def drop_beginnings(self) -> int:
        """Delete the beginnings of children that have ended, unless another child shares the beginning. Return the
        number of deleted blobs."""
        # With a condition on the state SQLite would read all finished rollouts by the index of states.
        stored = sa.select(rollouts.c.beginning, rollouts.c.state).where(HAS_BEGINNING)
        with self._db.read() as connection:
            rows = connection.execute(stored).all()
        digests = {row.beginning for row in rows if row.state == RolloutState.FINISHED}
        if not digests:
            return 0
        with self._db.write() as connection:
            released = {"beginning": "", "beginning_bytes": 0}
            ended = (HAS_BEGINNING, rollouts.c.state == RolloutState.FINISHED)
            mine = sa.update(rollouts).where(*ended, rollouts.c.beginning.in_(digests))
            connection.execute(mine.values(released))
        return delete_unused(self._db, digests)

    def drop_pictures(self, limit: int, checkpoint_step: int) -> tuple[int, int]:
        """Drop the pictures of the oldest `limit` rollouts whose groups are final (`is_over`) and that replay does not
        need (`is_needed`).

        Returns the number of rollouts whose pictures were dropped, and the freed bytes. No bytes are freed while other
        rollouts refer to the same pictures.
        """
        oldest = (
            sa.select(trajectories.c.id)
            .join(groups, trajectories.c.group_id == groups.c.id)
            .join(pictures, pictures.c.trajectory_id == trajectories.c.id)
            .where(is_over(checkpoint_step), ~is_needed(checkpoint_step))
            .group_by(trajectories.c.id)
            .order_by(trajectories.c.id)
            .limit(limit)
        )
        with self._db.write() as connection:
            ids = connection.execute(oldest).scalars().all()
            sizes = drop_references(connection, ids)
        return len(ids), self._delete_unreferenced(sizes)

    def drop_records(
        self,
        after: int,
        limit: int,
        *,
        up_to: int,
        created_before: float | None,
        version_below: int | None,
        checkpoint_step: int,
    ) -> tuple[int, int]:
        """Delete the records and pictures of old rollouts whose groups are final; their rows stay, without a blob.

        Reads the oldest `limit` trajectories with an id above `after`, up to `up_to`. A rollout is old if it was
        created before `created_before` (Unix seconds), or if it has no token of version `version_below` or newer.
        Demonstrations, entries of the success pool, stored members of groups to be trained, and trajectories trained
        after train step `checkpoint_step` are kept. The files of large records are left to `collect_garbage`, and their
        bytes remain counted. Returns the deleted bytes and the id up to which all rows are old; passing that id as the
        next `after` reads each row once.
        """
        page = (
            sa.select(
                trajectories,
                is_over(checkpoint_step).label("over"),
                is_needed(checkpoint_step).label("needed"),
            )
            .join(groups, trajectories.c.group_id == groups.c.id)
            .where(trajectories.c.id > after, trajectories.c.id <= up_to)
            .order_by(trajectories.c.id)
            .limit(limit)
        )
        freed, sizes = 0, {}
        with self._db.write() as connection:
            for row in connection.execute(page).all():
                newest = row.newest_version
                aged = created_before is not None and row.created_at < created_before
                outlived = version_below is not None and (newest is None or newest < version_below)
                if not (aged or outlived) or not row.over:
                    break
                after = row.id
                if row.needed or row.purpose == Purpose.DEMONSTRATION or not row.blob:
                    continue
                kept_bytes = 0 if self._db.store.blobs.release(connection, row.blob) else row.blob_bytes
                gone = {"blob": "", "blob_bytes": kept_bytes}
                connection.execute(sa.update(trajectories).where(trajectories.c.id == row.id).values(gone))
                freed += row.blob_bytes - kept_bytes
                sizes |= drop_references(connection, [row.id])
        return freed + self._delete_unreferenced(sizes), after

    def collect_garbage(self, on_progress: OnProgress = no_progress) -> int:
        """Delete the blobs that no trajectory and no unfinished rollout refers to; return their number.

        The run must not be active: large blobs are written before their row is committed, and would be deleted too.
        """
        names = sa.union(
            sa.select(trajectories.c.blob),
            sa.select(pictures.c.digest),
            *(
                sa.select(blob).where(rollouts.c.state != RolloutState.FINISHED)
                for blob in (rollouts.c.partial, rollouts.c.beginning)
            ),
        )
        store = self._db.store.blobs
        with self._db.read() as connection:
            used = {bytes.fromhex(name) for name in connection.execute(names).scalars()}
        with store.deletion() as connection:
            stored = {row.digest for row in connection.execute(sa.select(blobs.c.digest))}
            unused = [digest.hex() for digest in stored - used]
            unused += [name for name in store.files.digests() if bytes.fromhex(name) not in used]
            for done, name in enumerate(unused, start=1):
                store.delete(connection, [name])
                on_progress(done, len(unused))
            gone = (trajectories.c.blob == "", trajectories.c.blob_bytes > 0)
            connection.execute(sa.update(trajectories).where(*gone).values(blob_bytes=0))
        return len(unused)

    def shorten_log(self) -> bool:
        """Keep the database's write-ahead log bounded. Returns False and records an event if a reader blocks this."""
        if shortened := self._db.database.shorten_log():
            return shortened
        self._db.event("log_held", advice="a program holds a long read transaction on the ledger: close it")
        return False

    def _delete_unreferenced(self, sizes: dict[str, int]) -> int:
        """Delete the pictures in `sizes` (digest -> bytes) to which no row refers; return the deleted bytes.

        No other write runs during this transaction, so no new reference can appear before the deletion. A trajectory
        that is stored later writes its blobs again (`TrajectoryStore.write_pictures`).
        """
        return sum(sizes[digest] for digest in self._db.store.blobs.delete_unreferenced(sizes, pictures.c.digest))
