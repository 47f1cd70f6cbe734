"""Large blobs as files, one each: in the run's folder, or in any object store that fsspec knows."""

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quartet.crash_points import crash_point
from quartet.errors import SetupError
from quartet.files.disk import raise_if_full, sync


class BlobFiles(ABC):
    """Files named by a digest. A file appears under its name only when it is whole."""

    @abstractmethod
    def put(self, digest: str, data: bytes) -> None:
        """Store, in place of an older one."""

    @abstractmethod
    def holds(self, digest: str, num_bytes: int) -> bool:
        """Whether a file of that name and size is there."""

    @abstractmethod
    def get(self, digest: str) -> bytes:
        """Raises `FileNotFoundError`."""

    @abstractmethod
    def delete(self, digest: str) -> None:
        """One that is gone already is fine."""

    @abstractmethod
    def digests(self) -> Iterator[str]:
        """All that are there."""


class LocalBlobFiles(BlobFiles):
    """`blobs/ab/cdef….zst` under the run's folder. `fsync` makes a file survive power loss before `put` returns."""

    def __init__(self, root: Path, *, fsync: bool = False) -> None:
        self.root, self._fsync = root, fsync
        self._synced: set[Path] = set()
        """Folders whose own names are on the disk, as far as this process knows."""

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
        """Where a blob lies."""
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
        """Put the names in `folder` on the disk, and once its own, and that of the folder around it."""
        sync(folder)
        if folder not in self._synced:
            sync(self.root)
            sync(self.root.parent)
            self._synced.add(folder)


class ObjectBlobFiles(BlobFiles):
    """The same names under a URL (`s3://bucket/run`, `gs://…`); a put of an object store is whole or not at all."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec

            self._files, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise SetupError(
                f"no way to reach {url}: {error}",
                "pip install 'quartet-rl[objects]' and fsspec's driver for it (s3fs, gcsfs), or mend ledger.blobs_url",
            ) from error
        self._root: str = root

    def put(self, digest: str, data: bytes) -> None:
        path = self._path(digest)
        self._files.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self._files.pipe_file(path, data)

    def holds(self, digest: str, num_bytes: int) -> bool:
        try:
            return self._files.size(self._path(digest)) == num_bytes
        except FileNotFoundError:
            return False

    def get(self, digest: str) -> bytes:
        return self._files.cat_file(self._path(digest))

    def delete(self, digest: str) -> None:
        if self._files.exists(self._path(digest)):
            self._files.rm_file(self._path(digest))

    def digests(self) -> Iterator[str]:
        found: list[Any] = self._files.find(self._root) if self._files.exists(self._root) else []
        for path in found:
            folder, name = path.rsplit("/", 2)[1:]
            yield folder + name.removesuffix(".zst")

    def _path(self, digest: str) -> str:
        return f"{self._root}/{digest[:2]}/{digest[2:]}.zst"
