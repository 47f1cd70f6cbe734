"""What the run keeps on disk: bytes of blobs, and the records that may go."""

import sqlalchemy as sa

from quartet.ledger.pictures import Pictures, is_needed, is_over
from quartet.ledger.schema import blobs, groups, pictures, rollouts, trajectories
from quartet.on_progress import OnProgress, nobody_watches
from quartet.types import Purpose, RolloutState


class DiskSpace(Pictures):
    def blob_bytes(self, after: int = 0) -> tuple[int, int]:
        """Return the bytes of the blobs of all trajectories with an id above `after`, and the highest id counted.

        A caller that asks repeatedly reads each row once. A picture counts once, a record that two rows share twice.
        """
        sizes = sa.select(sa.func.sum(trajectories.c.blob_bytes), sa.func.max(trajectories.c.id))
        with self._database.read() as connection:
            total, last = connection.execute(sizes.where(trajectories.c.id > after)).one()
            return int(total or 0) + self._picture_bytes(connection, after), last or after

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
        names = sa.union(
            sa.select(trajectories.c.blob),
            sa.select(pictures.c.digest),
            sa.select(rollouts.c.partial).where(rollouts.c.state != RolloutState.FINISHED),
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

        Looks at the oldest `limit` trajectories with an id above `after`. Old means created before a time (Unix
        seconds), or with all tokens of versions below one, or without tokens. Demonstrations, the success pool's
        entries, what a group to be trained has been joined by and what was trained after the train step
        `checkpoint_step` stay, and large records wait for `collect_garbage`. Returns the bytes deleted and the id up to
        which everything is old, so that a caller who goes on from there reads each row once.
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
