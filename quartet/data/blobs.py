"""Content-addressed files beside the ledger: `blobs/ab/cdef….zst`, named by the SHA-256 of what they hold.

A file appears under its name only when it is whole, and is checked against its name at every read.
"""

import hashlib
import os
import tempfile
from pathlib import Path

import zstandard

from quartet.data.disk import raise_if_full
from quartet.errors import LedgerError

_LEVEL = 3


class DamagedBlobError(LedgerError):
    """A blob is missing or does not match its checksum."""


class BlobStore:
    """Bytes in, SHA-256 out, and back. `fsync` makes a blob survive power loss before `put` returns."""

    def __init__(self, root: Path, *, fsync: bool = False) -> None:
        self.root, self._fsync = root, fsync

    def put(self, data: bytes) -> str:
        """Store `data`; returns its SHA-256 in hex. Raises `SetupError` on a full disk, leaving nothing behind.

        A blob that is there already is written again: that heals a damaged one.
        """
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest)
        try:
            self._write(path, zstandard.ZstdCompressor(level=_LEVEL).compress(data))
        except OSError as error:
            raise_if_full(error, path if path.parent.is_dir() else self.root / path.name)
            raise
        return digest

    def get(self, digest: str) -> bytes:
        """The bytes that hash to `digest`. Raises `DamagedBlobError` when they are missing or altered."""
        path = self._path(digest)
        try:
            data = zstandard.ZstdDecompressor().decompress(path.read_bytes())
        except FileNotFoundError as error:
            raise DamagedBlobError(f"blob {path} is missing") from error
        except zstandard.ZstdError as error:
            raise DamagedBlobError(f"blob {path} cannot be decompressed: {error}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise DamagedBlobError(f"blob {path} does not match its checksum")
        return data

    def size_bytes(self, digest: str) -> int:
        """Size on disk."""
        return self._path(digest).stat().st_size

    def delete(self, digest: str) -> None:
        """Remove a blob; one that is gone already is fine."""
        self._path(digest).unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
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
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if self._fsync:
            _fsync_folder(path.parent)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
