"""Disk usage of the run's blobs, and deletion of blobs and records."""

import sqlalchemy as sa

from quartet.ledger.pictures import Pictures, is_needed, is_over
from quartet.ledger.schema import blobs, groups, pictures, rollouts, trajectories
from quartet.on_progress import OnProgress, nobody_watches
from quartet.types import Purpose, RolloutState


class DiskSpace(Pictures):
    def blob_bytes(self, after: int = 0) -> tuple[int, int]:
        """Return the bytes of the blobs of all trajectories with an id above `after`, and the highest id counted.

        With that id as the next `after`, each row is read once. Pictures count once, a record shared by two rows twice.
        """
        sizes = sa.select(sa.func.sum(trajectories.c.blob_bytes), sa.func.max(trajectories.c.id))
        with self._database.read() as connection:
            total, last = connection.execute(sizes.where(trajectories.c.id > after)).one()
            return int(total or 0) + self._picture_bytes(connection, after), last or after

    def shorten_log(self) -> bool:
        """Keep the database's write-ahead log bounded. Returns False and records an event if a reader blocks this."""
        if shortened := self._database.shorten_log():
            return shortened
        self.event("log_held", advice="a program holds a long read transaction on the ledger: close it")
        return False

    def collect_garbage(self, on_progress: OnProgress = nobody_watches) -> int:
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
        with self._database.read() as connection:
            used = {bytes.fromhex(name) for name in connection.execute(names).scalars()}
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

        Reads the oldest `limit` trajectories with an id above `after`. A rollout is old if it was created before
        `created_before` (Unix seconds), or if it has no token of version `version_below` or newer. Kept are
        demonstrations, entries of the success pool, stored members of groups to be trained, and trajectories trained
        after train step `checkpoint_step`. Large records are left to `collect_garbage`. Returns the bytes deleted and
        the id up to which all rows are old; with it as the next `after`, each row is read once.
        """
        page = (
            sa.select(
                trajectories,
                is_over(checkpoint_step).label("over"),
                is_needed(checkpoint_step).label("needed"),
            )
            .join(groups, trajectories.c.group_id == groups.c.id)
            .where(trajectories.c.id > after)
            .order_by(trajectories.c.id)
            .limit(limit)
        )
        freed, sizes = 0, {}
        with self._database.write() as connection:
            for row in connection.execute(page).all():
                newest = row.newest_version
                aged = created_before is not None and row.created_at < created_before
                outlived = version_below is not None and (newest is None or newest < version_below)
                if not (aged or outlived) or not row.over:
                    break
                after = row.id
                if row.needed or row.purpose == Purpose.DEMONSTRATION or not row.blob:
                    continue
                gone = {"blob": "", "blob_bytes": 0}
                connection.execute(sa.update(trajectories).where(trajectories.c.id == row.id).values(gone))
                freed += row.blob_bytes
                self._store.blobs.release(connection, row.blob)
                sizes |= self._drop_references(connection, [row.id])
        return freed + self._delete_unreferenced(sizes), after
