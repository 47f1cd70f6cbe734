"""Content-addressed compressed blobs: small ones in the ledger's database, large ones in files beside it.

A small blob is written in the transaction of the row that refers to it, so neither exists without the other. A million
trajectories without large blobs need no files. A large blob is completely written to its file before that transaction
begins. Every read is verified against the blob's name, the SHA-256 of the uncompressed content.
"""

import errno
import hashlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa
import zstandard
from msgspec import Struct
from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

from quartet.errors import LedgerError
from quartet.ledger.blob_files import BlobFiles
from quartet.ledger.database import Database
from quartet.ledger.database.prepared import Prepared
from quartet.ledger.schema import blobs
from quartet.ledger.values import read_value, write_value

LARGEST_BLOB_BYTES = 512 * 1024 * 1024
"""Size limit before compression: a hundred turns with pictures of 5 MB. A blob whose header declares more is treated as
damaged, because a corrupt header could otherwise request any amount of memory."""
LARGEST_IN_DATABASE_BYTES = 64 * 1024
"""Size limit after compression. SQLite reads and writes blobs up to about this size faster than separate files."""
_LEVEL = 3
_BLOBS_PER_QUERY = 500
"""Number of digests in one query, which is below every database's limit on the parameters of a statement."""
_ROW = {"digest": sa.bindparam("digest"), "data": sa.bindparam("data")}
_ONE = sa.literal_column("1")
_INSERT = Prepared(
    {
        name: insert(blobs)
        .values(_ROW)
        .on_conflict_do_update(index_elements=["digest"], set_={"data": _ROW["data"], "uses": blobs.c.uses + _ONE})
        for name, insert in (("sqlite", sqlite.insert), ("postgresql", postgresql.insert))
    }
)
"""Statement that writes a blob. If the blob exists, its data is written again, which repairs damage, and `uses` grows
by 1."""
_INSERT_ONCE = Prepared(
    {
        name: insert(blobs).values(_ROW).on_conflict_do_nothing(index_elements=["digest"])
        for name, insert in (("sqlite", sqlite.insert), ("postgresql", postgresql.insert))
    }
)
"""Statement that writes a blob if it does not exist yet."""

DELETIONS = "blob_deletions"
"""Key of the run's value that counts the beginnings and the ends of deletions of blobs."""
_DISK_FAULTS = (errno.EIO, errno.EISDIR)
"""Errors of a read that mean lost content; any other error is a problem of the machine."""


class BlobTooLargeError(LedgerError):
    """Bytes to be stored exceed the size limit of a blob."""


class DamagedBlobError(LedgerError):
    """A blob is missing, cannot be read, or does not match its checksum."""


class Blob(Struct, frozen=True, kw_only=True):
    """Compressed bytes to be stored."""

    digest: str
    """SHA-256 in hex of the uncompressed bytes."""
    data: bytes
    """Compressed bytes."""

    @property
    def in_database(self) -> bool:
        return len(self.data) <= LARGEST_IN_DATABASE_BYTES


class BlobStore:
    """Store of bytes by their SHA-256. Safe to share between threads."""

    def __init__(self, database: Database, files: BlobFiles) -> None:
        self._database, self.files = database, files
        self._thread = threading.local()

    def pack(self, data: bytes) -> Blob:
        """Hash and compress bytes, outside of any transaction. A large blob is in its file when this returns.

        Raises `BlobTooLargeError`, and `SetupError` on a full disk, which leaves no file behind.
        """
        blob = self._compressed(data)
        if not blob.in_database:
            self.files.put(blob.digest, blob.data)
        return blob

    def pack_shared(self, data: bytes) -> Blob:
        """Pack bytes that many rows refer to: like `pack`, but an existing file of a large blob is not rewritten."""
        blob = self._compressed(data)
        self.put_missing(blob)
        return blob

    def write_shared(self, connection: Connection, shared: Iterable[Blob], deletions: int) -> None:
        """Write blobs of `pack_shared`: like `write`, but an existing blob is not rewritten.

        PostgreSQL locks each new digest until the commit. All transactions write them in the same order and before they
        lock other rows, against deadlock.

        The argument `deletions` is the result of the method `deletions` before the blobs were packed. If it has grown
        since then, or is odd, missing files are written again. No file can be deleted before the commit, since a
        transaction that deletes excludes all other writes.
        """
        now = self.deletions_in(connection)
        deleted = now != deletions or now % 2 == 1
        for blob in sorted(shared, key=lambda blob: blob.digest):
            if blob.in_database:
                _INSERT_ONCE(connection, digest=bytes.fromhex(blob.digest), data=blob.data)
            elif deleted:
                self.put_missing(blob)

    def put_missing(self, blob: Blob) -> None:
        """Write the file of a large blob if it is missing."""
        if not blob.in_database and not self.files.holds(blob.digest, len(blob.data)):
            self.files.put(blob.digest, blob.data)

    def deletions(self) -> int:
        """Return how many deletions began and ended so far, in a separate transaction; see `deletions_in`."""
        with self._database.read() as connection:
            return self.deletions_in(connection)

    def deletions_in(self, connection: Connection) -> int:
        """Return how many deletions began and ended so far: an odd number while one runs, and after a crash of one.

        While the number is even and unchanged, no existing file has been deleted.
        """
        return read_value(connection, DELETIONS, 0)

    def write(self, connection: Connection, blob: Blob) -> None:
        """Store a small blob inside the caller's transaction; a large one is already in its file."""
        if blob.in_database:
            _INSERT(connection, digest=bytes.fromhex(blob.digest), data=blob.data)

    def get(self, digest: str) -> bytes:
        """Return the bytes with hash `digest`. Raises `DamagedBlobError` if they are missing or altered."""
        found = self.get_many([digest])[digest]
        if isinstance(found, DamagedBlobError):
            raise found
        return found

    def get_many(self, digests: Iterable[str]) -> dict[str, bytes | DamagedBlobError]:
        """Return many blobs by digest; a missing or altered one is returned as its error."""
        wanted = list(dict.fromkeys(digests))
        compressed: dict[str, bytes] = {}
        with self._database.read() as connection:
            for first in range(0, len(wanted), _BLOBS_PER_QUERY):
                page = [bytes.fromhex(digest) for digest in wanted[first : first + _BLOBS_PER_QUERY]]
                rows = connection.execute(sa.select(blobs.c.digest, blobs.c.data).where(blobs.c.digest.in_(page)))
                compressed |= {row.digest.hex(): row.data for row in rows}
        return {digest: self._open(digest, compressed.get(digest)) for digest in wanted}

    def release(self, connection: Connection, digest: str) -> bool:
        """Drop one row's reference to a small blob, and delete the blob after its last reference.

        Returns False if the blob is not in the database; `delete` handles large blobs.
        """
        mine = blobs.c.digest == bytes.fromhex(digest)
        found = connection.execute(sa.update(blobs).where(mine).values(uses=blobs.c.uses - 1)).rowcount > 0
        connection.execute(sa.delete(blobs).where(mine, blobs.c.uses < 1))
        return found

    @contextmanager
    def deletion(self) -> Iterator[Connection]:
        """Open a transaction for `delete` that excludes other writes.

        A deletion of files is not undone if the transaction fails. So its beginning is committed first, and until a
        deletion has ended, `write_shared` looks for every file.
        """
        begun = False
        while not begun:
            with self._database.write() as connection:
                write_value(connection, DELETIONS, self.deletions_in(connection) | 1)
            with self._database.write() as connection:
                count = self.deletions_in(connection)
                begun = count % 2 == 1  # otherwise another process has ended its deletion meanwhile
                if begun:
                    yield connection
                    write_value(connection, DELETIONS, count + 1)

    def delete_unreferenced(
        self, digests: Iterable[str], column: sa.Column[str], *conditions: sa.ColumnElement[bool]
    ) -> set[str]:
        """Delete those of these blobs that no row names in `column`, some per transaction, and return them.

        `conditions` on the rows let the database use an index.
        """
        deleted, ordered = set[str](), list(digests)
        for first in range(0, len(ordered), _BLOBS_PER_QUERY):
            page = ordered[first : first + _BLOBS_PER_QUERY]
            with self.deletion() as connection:
                named = connection.execute(sa.select(column).where(*conditions, column.in_(page)).distinct()).scalars()
                unreferenced = set(page).difference(named)
                self.delete(connection, unreferenced)
            deleted |= unreferenced
        return deleted

    def delete(self, connection: Connection, digests: Iterable[str]) -> None:
        """Delete blobs from the database or their files, in the transaction of `deletion`; missing ones are ignored."""
        for digest in digests:
            row = sa.delete(blobs).where(blobs.c.digest == bytes.fromhex(digest))
            if not connection.execute(row).rowcount:
                self.files.delete(digest)

    def _compressed(self, data: bytes) -> Blob:
        if len(data) > LARGEST_BLOB_BYTES:
            raise BlobTooLargeError(
                f"a record or picture of {_size(len(data))} cannot be stored: the limit is {LARGEST_BLOB_BYTES} bytes",
                "shorten what the environment shows, or lower rollout.max_turns",
            )
        return Blob(digest=hashlib.sha256(data).hexdigest(), data=self._compressor().compress(data))

    def _open(self, digest: str, compressed: bytes | None) -> bytes | DamagedBlobError:
        if not digest:
            return DamagedBlobError("the record was deleted because of its age (disk.max_record_age_*)")
        try:
            compressed = self.files.get(digest) if compressed is None else compressed
            declared_bytes = zstandard.frame_content_size(compressed)
            if not 0 <= declared_bytes <= LARGEST_BLOB_BYTES:
                return DamagedBlobError(
                    f"blob {digest} declares {_size(declared_bytes)}; the limit is {LARGEST_BLOB_BYTES} bytes"
                )
            data = zstandard.ZstdDecompressor().decompress(compressed)
        except FileNotFoundError:
            return DamagedBlobError(f"blob {digest} is missing")
        except OSError as error:
            if error.errno not in _DISK_FAULTS:
                raise
            return DamagedBlobError(f"blob {digest} cannot be read: {error}")
        except zstandard.ZstdError as error:
            return DamagedBlobError(f"blob {digest} cannot be decompressed: {error}")
        if hashlib.sha256(data).hexdigest() != digest:
            return DamagedBlobError(f"blob {digest} does not match its checksum")
        return data

    def _compressor(self) -> zstandard.ZstdCompressor:
        """Return this thread's compressor. Creating one costs more than compressing a small blob."""
        if not hasattr(self._thread, "compressor"):
            self._thread.compressor = zstandard.ZstdCompressor(level=_LEVEL)
        return self._thread.compressor


def _size(declared_bytes: int) -> str:
    return "no size" if declared_bytes < 0 else f"{declared_bytes} bytes"
