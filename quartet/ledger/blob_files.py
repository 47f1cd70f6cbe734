"""Large blobs as one file each, and the files in the run's folder. `object_blobs.py` has those in an object store."""

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from quartet.crash_points import crash_point
from quartet.files.disk import raise_if_full, sync


class BlobFiles(ABC):
    """Files named by a digest, written atomically."""

    @abstractmethod
    def put(self, digest: str, data: bytes) -> None:
        """Store a file, replacing an older one of that name."""

    @abstractmethod
    def holds(self, digest: str, num_bytes: int) -> bool:
        """Return whether a file of that name and size exists."""

    @abstractmethod
    def get(self, digest: str) -> bytes:
        """Read a file. Raises `FileNotFoundError`."""

    @abstractmethod
    def delete(self, digest: str) -> None:
        """Delete a file; a missing one is ignored."""

    @abstractmethod
    def digests(self) -> Iterator[str]:
        """Yield the digests of all files."""


class LocalBlobFiles(BlobFiles):
    """Files `blobs/ab/cdef….zst` in the run's folder. With `fsync` a file survives power loss once `put` returns."""

    def __init__(self, root: Path, *, fsync: bool = False) -> None:
        self.root, self._fsync = root, fsync
        self._synced: set[Path] = set()
        """Folders whose own names this process has synced to disk."""

    def put(self, digest: str, data: bytes) -> None:
        path = self.path(digest)
        try:
            self._write(path, data)
        except OSError as error:
            raise_if_full(error, path if path.parent.is_dir() else self.root / path.name)
            raise

    def holds(self, digest: str, num_bytes: int) -> bool:
        try:
            return self.path(digest).stat().st_size == num_bytes
        except FileNotFoundError:
            return False

    def get(self, digest: str) -> bytes:
        return self.path(digest).read_bytes()

    def delete(self, digest: str) -> None:
        self.path(digest).unlink(missing_ok=True)

    def digests(self) -> Iterator[str]:
        for path in self.root.glob("??/*.zst"):
            yield path.parent.name + path.stem

    def path(self, digest: str) -> Path:
        """Return the path of a blob."""
        return self.root / digest[:2] / f"{digest[2:]}.zst"

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if self._fsync:
                    os.fsync(file.fileno())
            crash_point("blob.before")
            temporary.replace(path)
            crash_point("blob.after")
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if self._fsync:
            self._sync_names(path.parent)

    def _sync_names(self, folder: Path) -> None:
        """Sync the names in `folder` to disk and, once per folder, its own name and that of the root."""
        sync(folder)
        if folder not in self._synced:
            sync(self.root)
            sync(self.root.parent)
            self._synced.add(folder)
