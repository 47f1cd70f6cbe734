"""Large blobs in an object store: S3 and what speaks its protocol, or any other store that fsspec has a driver for.

A run has a folder of its own under `ledger.blobs_url`, so that its garbage collection finds no blobs of another run.
An object appears whole or not at all; what is read is verified by its name (`BlobStore`). Nothing is cached: another
process may have written or deleted an object a moment ago.
"""

import logging
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from quartet.crash_points import crash_point
from quartet.errors import LedgerError, LedgerUnreachableError, SetupError
from quartet.ledger.blob_files import BlobFiles
from quartet.ledger.database import find_database, has_database
from quartet.ledger.schema import run_values
from quartet.ledger.values import read_value

LOG = logging.getLogger(__name__)
_BLOB = re.compile(r"([0-9a-f]{2})/([0-9a-f]{62})\.zst")
_PROBE = "00" * 32
"""Name of the object that `check` writes: no content has this digest."""


def folder_for(blobs_url: str, run_dir: Path) -> str:
    """Return the URL for the blobs of a new run under the setting `ledger.blobs_url`."""
    return f"{blobs_url.rstrip('/')}/{_name_of(run_dir)}-{secrets.token_hex(4)}"


def drop_objects(run_dir: Path) -> None:
    """Delete the blobs of a run from its object store; a run without one is ignored, and so is a folder that runs of
    older versions may share."""
    url = _url_of(run_dir) if has_database(run_dir) else ""
    if re.fullmatch(rf"{re.escape(_name_of(run_dir))}-[0-9a-f]{{8}}", url.rpartition("/")[2]):
        ObjectBlobFiles(url).drop()


def _url_of(run_dir: Path) -> str:
    database = find_database(run_dir)
    try:
        with database.read() as connection:
            made = sa.inspect(connection).has_table(run_values.name)
            return read_value(connection, "blobs_url", "") if made else ""
    except LedgerError as error:  # a damaged ledger can be deleted
        LOG.warning("cannot read whether %s has blobs in an object store, which stay there: %s", run_dir, error)
        return ""
    finally:
        database.close()


def _name_of(run_dir: Path) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]+", "-", run_dir.name)


class ObjectBlobFiles(BlobFiles):
    """Objects `ab/cdef….zst` under a URL (`s3://bucket/run`, `gs://…`).

    Credentials and endpoint are those of the driver; for S3 the variables and files of the AWS command line. A method
    raises `SetupError` if the store refuses access, and `LedgerUnreachableError` if it does not answer after the
    driver's retries.
    """

    def __init__(self, url: str) -> None:
        try:
            import fsspec

            # A local folder needs its parents. An object store has none, and must not make a bucket for a wrong name.
            makes_folders = {"auto_mkdir": True} if url.partition("://")[0] in ("file", "local") else {}
            self._files, root = fsspec.core.url_to_fs(
                url, use_listings_cache=False, skip_instance_cache=True, **makes_folders
            )
        except (ImportError, ValueError) as error:
            raise SetupError(
                f"cannot open the object store {url}: {error}",
                "pip install 'quartet-rl[s3]', or fsspec and its driver for another store, or fix ledger.blobs_url",
            ) from error
        self._url, self._root = url, str(root)

    def put(self, digest: str, data: bytes) -> None:
        crash_point("blob.before")
        with self._explained():
            self._files.pipe_file(self._path(digest), data)
        crash_point("blob.after")

    def holds(self, digest: str, num_bytes: int) -> bool:
        try:
            with self._explained():
                return self._files.size(self._path(digest)) == num_bytes
        except FileNotFoundError:
            return False

    def get(self, digest: str) -> bytes:
        with self._explained():
            return self._files.cat_file(self._path(digest))

    def delete(self, digest: str) -> None:
        try:
            with self._explained():
                self._files.rm_file(self._path(digest))
        except FileNotFoundError:
            return

    def digests(self) -> Iterator[str]:
        with self._explained():
            found: list[str] = self._files.find(self._root)
        for path in found:
            if name := _BLOB.fullmatch(path[len(self._root) :].lstrip("/")):
                yield name[1] + name[2]

    def check(self) -> None:
        """Write, read and delete a small object. Raises `SetupError`, also for a bucket that does not exist."""
        try:
            self.put(_PROBE, b"probe")
            self.get(_PROBE)
            self.delete(_PROBE)
        except FileNotFoundError as error:
            raise SetupError(
                f"cannot store blobs at {self._url}: {error}", "create the bucket, or fix ledger.blobs_url"
            ) from error

    def drop(self) -> None:
        """Delete all objects of the run."""
        for digest in list(self.digests()):
            self.delete(digest)

    def _path(self, digest: str) -> str:
        return f"{self._root}/{digest[:2]}/{digest[2:]}.zst"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise the user-facing error for an error of the driver; a missing object stays `FileNotFoundError`."""
        try:
            yield
        except FileNotFoundError:
            raise
        except PermissionError as error:
            raise SetupError(
                f"the object store refuses access to {self._url}: {error}",
                "check the credentials of its driver and the policy of the bucket, then continue with --resume",
            ) from error
        except (OSError, *_driver_errors()) as error:
            raise LedgerUnreachableError(
                f"the object store does not answer for {self._url}: {type(error).__name__}: {error}",
                "check the network and the endpoint of its driver, then continue with --resume; what was committed is "
                "intact",
            ) from error


def _driver_errors() -> tuple[type[Exception], ...]:
    """Return the errors of S3's driver that are no `OSError`: it raises those of its library as they are."""
    try:
        from botocore.exceptions import BotoCoreError  # type: ignore[import-not-found]
    except ImportError:  # another store
        return ()
    return (BotoCoreError,)
