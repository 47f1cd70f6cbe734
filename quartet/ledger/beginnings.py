"""Beginnings of forked rollouts: one blob for all children of a place, deleted when they have ended."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger.blobs import Blob, DamagedBlobError
from quartet.ledger.part import LedgerPart
from quartet.ledger.schema import HAS_BEGINNING, rollouts
from quartet.types import Beginning, Fork, RolloutLease, RolloutState


class Child(NamedTuple):
    """A child to be queued."""

    place: Fork
    beginning: Blob
    deletions: int
    """Of blobs in this run before the beginning was packed."""


class Beginnings(LedgerPart):
    def beginning_bytes(self) -> int:
        """Return the bytes of what children begin with that have not ended, or were not released since."""
        different = sa.select(rollouts.c.beginning, rollouts.c.beginning_bytes).where(HAS_BEGINNING).distinct()
        with self._database.read() as connection:
            total = sa.select(sa.func.sum(different.subquery().c.beginning_bytes))
            return int(connection.execute(total).scalar() or 0)

    def drop_beginnings(self) -> int:
        """Delete what children that have ended began with, unless other children begin with the same. Return how many
        blobs.

        The references go first, and the blobs in a later transaction: a crash in between leaves blobs for
        `collect_garbage`.
        """
        ended = (HAS_BEGINNING, rollouts.c.state == RolloutState.FINISHED)
        with self._database.read() as connection:
            digests = set(connection.execute(sa.select(rollouts.c.beginning).where(*ended)).scalars())
        if not digests:
            return 0
        with self._database.write() as connection:
            released = {"beginning": "", "beginning_bytes": 0}
            mine = sa.update(rollouts).where(*ended, rollouts.c.beginning.in_(digests))
            connection.execute(mine.values(released))
        return self._delete_unused_beginnings(digests)

    def damaged_beginnings(self) -> list[tuple[int, str]]:
        """Return the unfinished children whose beginning cannot be read, each with the damage.

        The rows are read again at the end, because children of an active run end and their beginnings are deleted.
        """
        digests = {row.beginning for row in self._unfinished_children()}
        damage = {digest: self._beginning_damage(digest) for digest in digests}
        return [(row.id, damage[row.beginning]) for row in self._unfinished_children() if damage.get(row.beginning)]

    def _unfinished_children(self) -> Sequence[Any]:
        unfinished = (HAS_BEGINNING, rollouts.c.state != RolloutState.FINISHED)
        query = sa.select(rollouts.c.id, rollouts.c.beginning).where(*unfinished).order_by(rollouts.c.id)
        with self._database.read() as connection:
            return connection.execute(query).all()

    def _beginning_damage(self, digest: str) -> str:
        try:
            self._read_beginning(digest)
        except DamagedBlobError as error:
            return error.what
        except OSError as error:
            return f"blob {digest} cannot be read: {error}"
        return ""

    def _delete_unused_beginnings(self, digests: set[str]) -> int:
        """Delete the beginnings that no rollout refers to; return how many."""
        with self._database.write() as connection:
            query = sa.select(rollouts.c.beginning).where(HAS_BEGINNING, rollouts.c.beginning.in_(digests))
            unreferenced = digests - set(connection.execute(query).scalars())
            self._store.blobs.delete(connection, unreferenced)
        return len(unreferenced)

    def _discard_beginnings(self, children: Iterable[Child | None]) -> None:
        """Delete the files of children that were not queued: a large beginning is written before its row."""
        large = {child.beginning.digest for child in children if child and not child.beginning.in_database}
        if large:
            self._delete_unused_beginnings(large)

    def _pack_child(self, place: Fork, beginning: Beginning) -> Child:
        """Encode and compress, outside of any transaction."""
        deletions = self._store.blobs.deletions()
        return Child(place, self._store.blobs.pack_shared(msgspec.msgpack.encode(beginning)), deletions)

    def _write_child(self, connection: Connection, child: Child | None) -> dict[str, int | str]:
        """Store what a new rollout begins with; return the columns of its row that say where and how it begins."""
        if child is None:
            return {}
        self._store.blobs.write_shared(connection, [child.beginning], child.deletions)
        return {
            "parent_id": child.place.rollout_id,
            "parent_call": child.place.call_index,
            "beginning": child.beginning.digest,
            "beginning_bytes": len(child.beginning.data),
        }

    def _load_shared(self, lease: RolloutLease) -> Beginning:
        """Return what a child shares with its parent; nothing where the rollout begins with a reset. Raises
        `DamagedBlobError`."""
        return self._read_beginning(lease.beginning) if lease.beginning else Beginning()

    def _read_beginning(self, digest: str) -> Beginning:
        try:
            return msgspec.msgpack.decode(self._store.blobs.get(digest), type=Beginning)
        except msgspec.MsgspecError as error:
            raise DamagedBlobError(f"blob {digest} does not hold what a child begins with: {error}") from error
