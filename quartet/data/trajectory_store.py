"""Trajectories as blobs: the record without its pictures, and the pictures apart.

Two blobs, because pictures are most of the bytes and the disk budget takes them first.
"""

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import Struct, structs
from sqlalchemy import Connection

from quartet.data.blobs import Blob, BlobStore, DamagedBlobError
from quartet.data.former_records import FormerTrajectory
from quartet.types import Trajectory, Turn

T = TypeVar("T")
_FORMAT = msgspec.msgpack.encode("format")
"""The key that a record begins with since schema 6."""


class PackedTrajectory(Struct, frozen=True, kw_only=True):
    """A trajectory on its way into the store."""

    record: Blob
    screenshots: Blob | None


class TrajectoryStore:
    """Saves and loads trajectories in a blob store."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs

    def pack(self, trajectory: Trajectory) -> PackedTrajectory:
        """Encode and compress, outside of any transaction. Raises `SetupError` on a full disk."""
        pictures = [turn.observation.screenshot for turn in trajectory.turns]
        bare = trajectory
        if any(pictures):
            bare = structs.replace(trajectory, turns=[_with_screenshot(turn, None) for turn in trajectory.turns])
        return PackedTrajectory(
            record=self.blobs.pack(msgspec.msgpack.encode(bare)),
            screenshots=self.blobs.pack(msgspec.msgpack.encode(pictures)) if any(pictures) else None,
        )

    def write(self, connection: Connection, packed: PackedTrajectory) -> None:
        """Store both blobs as part of a transaction."""
        self.blobs.write(connection, packed.record)
        if packed.screenshots:
            self.blobs.write(connection, packed.screenshots)

    def load(self, blob: str, screenshots_blob: str | None = None) -> Trajectory:
        """Read a trajectory, with its pictures when their blob is given. Raises `DamagedBlobError`."""
        trajectory = _record(blob, self.blobs.get(blob))
        if screenshots_blob is None:
            return trajectory
        pictures = _decode(screenshots_blob, self.blobs.get(screenshots_blob), list[bytes | None])
        if len(pictures) != len(trajectory.turns):
            raise DamagedBlobError(f"blob {screenshots_blob} holds {len(pictures)} pictures of another trajectory")
        turns = [_with_screenshot(turn, picture) for turn, picture in zip(trajectory.turns, pictures, strict=True)]
        return structs.replace(trajectory, turns=turns)

    def load_many(self, blobs: Iterable[str]) -> dict[str, Trajectory | DamagedBlobError]:
        """Records without pictures, by blob; one that cannot be read is its error."""
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
    if _FORMAT in data[: len(_FORMAT) + 3]:  # behind the header of the map
        return _decode(blob, data, Trajectory)
    try:
        return _decode(blob, data, FormerTrajectory).current()
    except ValueError as error:
        raise DamagedBlobError(f"blob {blob} holds a record that does not fit itself: {error}") from error


def _decode(blob: str, data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedBlobError(f"blob {blob} does not hold a {kind}: {error}") from error


def _with_screenshot(turn: Turn, screenshot: bytes | None) -> Turn:
    return structs.replace(turn, observation=structs.replace(turn.observation, screenshot=screenshot))
