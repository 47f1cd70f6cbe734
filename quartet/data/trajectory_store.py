"""Trajectories as blobs: the record without its pictures, and the pictures apart.

Two blobs, because pictures are most of the bytes and the disk budget takes them first.
"""

from typing import TypeVar

import msgspec
from msgspec import Struct, structs

from quartet.data.blobs import BlobStore, DamagedBlobError
from quartet.types import Trajectory, Turn

T = TypeVar("T")


class StoredTrajectory(Struct, frozen=True, kw_only=True):
    """Where a trajectory lies. Sizes are bytes on disk."""

    blob: str
    blob_bytes: int
    screenshots_blob: str | None
    screenshots_bytes: int


class TrajectoryStore:
    """Saves and loads trajectories in a blob store."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs

    def save(self, trajectory: Trajectory) -> StoredTrajectory:
        """Write both blobs. They are on disk when this returns. Raises `SetupError` on a full disk."""
        pictures = [turn.observation.screenshot for turn in trajectory.turns]
        bare = structs.replace(trajectory, turns=[_with_screenshot(turn, None) for turn in trajectory.turns])
        blob = self.blobs.put(msgspec.msgpack.encode(bare))
        screenshots = self.blobs.put(msgspec.msgpack.encode(pictures)) if any(pictures) else None
        return StoredTrajectory(
            blob=blob,
            blob_bytes=self.blobs.size_bytes(blob),
            screenshots_blob=screenshots,
            screenshots_bytes=self.blobs.size_bytes(screenshots) if screenshots else 0,
        )

    def load(self, blob: str, screenshots_blob: str | None = None) -> Trajectory:
        """Read a trajectory, with its pictures when their blob is given. Raises `DamagedBlobError`."""
        trajectory = self._decode(blob, Trajectory)
        if screenshots_blob is None:
            return trajectory
        pictures = self._decode(screenshots_blob, list[bytes | None])
        if len(pictures) != len(trajectory.turns):
            raise DamagedBlobError(f"blob {screenshots_blob} holds {len(pictures)} pictures of another trajectory")
        turns = [_with_screenshot(turn, picture) for turn, picture in zip(trajectory.turns, pictures, strict=True)]
        return structs.replace(trajectory, turns=turns)

    def _decode(self, blob: str, kind: type[T]) -> T:
        try:
            return msgspec.msgpack.decode(self.blobs.get(blob), type=kind)
        except msgspec.MsgspecError as error:
            raise DamagedBlobError(f"blob {blob} does not hold a {kind}: {error}") from error


def _with_screenshot(turn: Turn, screenshot: bytes | None) -> Turn:
    return structs.replace(turn, observation=structs.replace(turn.observation, screenshot=screenshot))
