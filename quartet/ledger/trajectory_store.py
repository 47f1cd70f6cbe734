"""Trajectories as blobs: the record with references to its pictures, and one blob per picture.

Pictures are most of the bytes. Rollouts share them, the disk budget deletes them first, and batches load them lazily.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

import msgspec
import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy import Connection

from quartet.ledger.blobs import Blob, BlobStore, DamagedBlobError
from quartet.ledger.former_records import FormerTrajectory, with_former_pictures
from quartet.ledger.schema import pictures
from quartet.types import Observation, Picture, Trajectory

T = TypeVar("T")
_FORMAT = msgspec.msgpack.encode("format")
"""First key of a record since schema 6."""


class PackedTrajectory(Struct, frozen=True, kw_only=True):
    """An encoded trajectory to be stored."""

    record: Blob
    pictures: list[Blob]
    """Distinct pictures of the trajectory."""
    deletions: int = 0
    """Number of blob deletions in this run before the pictures were packed."""


class TrajectoryStore:
    """Store of trajectories in a blob store."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs

    def pack(self, trajectory: Trajectory) -> PackedTrajectory:
        """Encode and compress a trajectory and its pictures, outside of any transaction. Raises `SetupError` on a full
        disk."""
        packed: dict[str, Blob] = {}
        deletions = self.blobs.deletions() if trajectory.has_pictures else 0

        def refer(picture: Picture) -> Picture:
            if not picture.data:  # an import may refer to a picture that it does not contain
                return picture
            blob = self.blobs.pack_shared(picture.data)
            packed[blob.digest] = blob
            return Picture(content_hash=blob.digest)

        bare = _changed(trajectory, refer)
        record = self.blobs.pack(msgspec.msgpack.encode(bare))
        return PackedTrajectory(record=record, pictures=list(packed.values()), deletions=deletions)

    def write(self, connection: Connection, packed: PackedTrajectory) -> None:
        """Store the record inside the caller's transaction."""
        self.blobs.write(connection, packed.record)

    def write_pictures(self, connection: Connection, packed: Sequence[PackedTrajectory]) -> None:
        """Store the pictures of all trajectories of a transaction; call this before it locks rows."""
        pictures = {blob.digest: blob for one in packed for blob in one.pictures}
        deletions = min((one.deletions for one in packed if one.pictures), default=0)
        if pictures:
            self.blobs.write_shared(connection, pictures.values(), deletions)

    def refer_to_pictures(self, connection: Connection, trajectory_id: int, packed: PackedTrajectory) -> None:
        """Store the trajectory's references to its pictures, inside the transaction that writes its row."""
        rows = [
            {"trajectory_id": trajectory_id, "digest": blob.digest, "bytes": len(blob.data)} for blob in packed.pictures
        ]
        connection.execute(sa.insert(pictures), rows)

    def load(self, blob: str, digests: Collection[str] = ()) -> Trajectory:
        """Read a trajectory, with the pictures in `digests` and references to the others.

        Raises `DamagedBlobError`.
        """
        data = self.blobs.get(blob)
        trajectory = _record(blob, data)
        if not digests:
            return trajectory
        if not _is_current(data):
            (digest,) = digests
            found = _decode(digest, self.blobs.get(digest), list[bytes | None])
            if len(found) != len(trajectory.turns):
                raise DamagedBlobError(f"blob {digest} holds {len(found)} pictures of another trajectory")
            return with_former_pictures(trajectory, found)
        contents = self.load_pictures(digests)
        return _changed(
            trajectory, lambda picture: structs.replace(picture, data=contents.get(picture.content_hash, b""))
        )

    def load_pictures(self, digests: Iterable[str]) -> dict[str, bytes]:
        """Read pictures by their content hashes. Raises `DamagedBlobError`."""
        found = self.blobs.get_many(digests)
        if error := next((one for one in found.values() if isinstance(one, DamagedBlobError)), None):
            raise error
        return {digest: data for digest, data in found.items() if isinstance(data, bytes)}

    def load_many(self, blobs: Iterable[str]) -> dict[str, Trajectory | DamagedBlobError]:
        """Return records without pictures, by blob; an unreadable one is returned as its error."""
        return {blob: _decoded(blob, data) for blob, data in self.blobs.get_many(blobs).items()}


def _decoded(blob: str, data: bytes | DamagedBlobError) -> Trajectory | DamagedBlobError:
    if isinstance(data, DamagedBlobError):
        return data
    try:
        return _record(blob, data)
    except DamagedBlobError as error:
        return error


def _record(blob: str, data: bytes) -> Trajectory:
    """Read a record of any schema version. Raises `DamagedBlobError`."""
    if _is_current(data):
        return _decode(blob, data, Trajectory)
    try:
        return _decode(blob, data, FormerTrajectory).current()
    except ValueError as error:
        raise DamagedBlobError(f"blob {blob} holds an inconsistent record: {error}") from error


def _is_current(data: bytes) -> bool:
    return _FORMAT in data[: len(_FORMAT) + 3]  # after the header of the map, of up to 3 bytes


def _decode(blob: str, data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedBlobError(f"blob {blob} does not hold a {kind.__name__}: {error}") from error


def _changed(trajectory: Trajectory, change: Callable[[Picture], Picture]) -> Trajectory:
    """Return the trajectory with each of its pictures changed."""
    if not trajectory.has_pictures:
        return trajectory

    def changed(observation: Observation) -> Observation:
        return structs.replace(observation, pictures=[change(picture) for picture in observation.pictures])

    final = trajectory.final_observation
    turns = [structs.replace(turn, observation=changed(turn.observation)) for turn in trajectory.turns]
    return structs.replace(trajectory, turns=turns, final_observation=changed(final) if final else None)
