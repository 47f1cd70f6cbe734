"""Blobs: what is read is what was written, or an error that names it; small ones need no file."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quartet.errors import SetupError
from quartet.ledger.blob_files import BlobFiles, LocalBlobFiles
from quartet.ledger.blobs import (
    LARGEST_BLOB_BYTES,
    LARGEST_IN_DATABASE_BYTES,
    BlobStore,
    BlobTooLargeError,
    DamagedBlobError,
)
from quartet.ledger.database.base import Database
from quartet.ledger.object_blobs import ObjectBlobFiles
from quartet.ledger.schema import blobs
from quartet.ledger.trajectory_store import TrajectoryStore
from quartet.types import Picture, Task
from tests.full_disk import max_file_size
from tests.ledger.samples import bomb, finish, plan, trajectory

TASK = Task(env="bandit", family="left", seed=3, params={"turns": 2})
LARGE = os.urandom(2 * LARGEST_IN_DATABASE_BYTES)


@pytest.fixture(params=["local", "memory://", "file://"])
def files(request, tmp_path) -> BlobFiles:
    if request.param == "local":
        return LocalBlobFiles(tmp_path / "blobs", fsync=True)
    return ObjectBlobFiles(f"{request.param}{tmp_path / 'objects'}")


@pytest.fixture
def database(ledger) -> Database:
    return ledger.db.database


@pytest.fixture
def store(database, files) -> BlobStore:
    return BlobStore(database, files)


@pytest.fixture
def put(database, store) -> Callable[[bytes], str]:
    def write(data: bytes) -> str:
        blob = store.pack(data)
        with database.write() as connection:
            store.write(connection, blob)
        return blob.digest

    return write


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=2000))
def test_round_trip(store, data, put):
    digest = put(data)
    assert store.get(digest) == data
    assert put(data) == digest
    assert list(store.files.digests()) == []


def test_with_full_durability_the_folders_around_a_file_are_synced(tmp_path, monkeypatch):
    """The first file of a folder makes the folder: its name must survive power loss too."""
    synced, fsync = [], os.fsync

    def recording(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", recording)
    files = LocalBlobFiles(tmp_path / "blobs", fsync=True)
    for last in "12":
        files.put(f"ab{last}", LARGE)
    folder = tmp_path / "blobs" / "ab"
    assert synced[1:4] == [folder, tmp_path / "blobs", tmp_path]
    assert synced[5:] == [folder]


def test_a_large_one_is_a_file(store, files, database, put):
    digest = put(LARGE)
    assert (store.get(digest), put(LARGE)) == (LARGE, digest)
    assert list(files.digests()) == [digest]
    with database.write() as connection:
        store.delete(connection, [digest])
        store.delete(connection, [digest])
    assert list(files.digests()) == []


def test_many_at_once_with_those_that_are_gone(store, database):
    data = [os.urandom(20) for _ in range(1200)]
    digests = [store.pack(item).digest for item in data]
    with database.write() as connection:
        for item in data[::2]:
            store.write(connection, store.pack(item))
    found = store.get_many(digests)
    assert list(found) == digests
    assert [isinstance(found[digest], DamagedBlobError) for digest in digests] == [False, True] * 600


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: b"x" * len(data)])
@pytest.mark.parametrize("content", [b"some record", LARGE], ids=["small", "large"])
def test_damage_is_noticed_named_and_healed(store, files, damage, content, database, put):
    blob = store.pack(content)
    digest = put(content)
    if blob.in_database:
        with database.write() as connection:
            connection.execute(sa.update(blobs).values(data=damage(blob.data)))
    else:
        files.put(digest, damage(blob.data))
    with pytest.raises(DamagedBlobError, match=digest):
        store.get(digest)
    put(content)
    assert store.get(digest) == content


def replaced(database: Database, data: bytes) -> None:
    """Put other compressed bytes into the row of a small blob."""
    with database.write() as connection:
        assert connection.execute(sa.update(blobs).values(data=data)).rowcount == 1


def test_no_flipped_bit_of_a_header_is_more_than_damage(store, database, put):
    """A header declares how much memory its content needs: what it declares is not believed."""
    content = b"some record" * 2000
    blob = store.pack(content)
    digest = put(content)
    for position in range(18):  # the longest header that the format knows
        for bit in range(8):
            flipped = bytearray(blob.data)
            flipped[position] ^= 1 << bit
            replaced(database, bytes(flipped))
            found = store.get_many([digest])[digest]
            assert found == content or isinstance(found, DamagedBlobError)


@pytest.mark.parametrize("declared", [-1, LARGEST_BLOB_BYTES + 1, 3 << 30, 1 << 62])
def test_a_declared_size_that_no_blob_has_is_damage(store, declared, database, put):
    digest = put(b"some record")
    replaced(database, bomb(declared))
    with pytest.raises(DamagedBlobError, match=f"{digest} declares"):
        store.get(digest)


@pytest.mark.parametrize("pack", [BlobStore.pack, BlobStore.pack_shared])
def test_a_blob_that_would_be_read_as_damaged_is_refused(store, files, pack):
    with pytest.raises(BlobTooLargeError, match=f"of {LARGEST_BLOB_BYTES + 1} bytes .* limit is {LARGEST_BLOB_BYTES}"):
        pack(store, bytes(LARGEST_BLOB_BYTES + 1))
    assert list(files.digests()) == []


def test_a_file_on_a_bad_sector_is_damage(ledger):
    class BadDisk(LocalBlobFiles):
        def get(self, digest: str) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(DamagedBlobError, match=r"cannot be read: .*Input/output error"):
        BlobStore(ledger.db.database, BadDisk(ledger.run_dir)).get("ab" * 32)


@pytest.mark.parametrize(
    "params",
    [
        b"\x81\xa1a" + b"\x91" * 100_000,
        b"\x81\xa1a\xa2\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa1a\xdd\xff\xff\xff\xff",
    ],
    ids=["too deep", "no text", "too many entries", "too long a list"],
)
def test_a_whole_blob_that_cannot_be_decoded_is_damage(store, params, put):
    record = b"\x81\xa4task\x84\xa3env\xa1e\xa6family\xa1f\xa4seed\x01\xa6params" + params
    with pytest.raises(DamagedBlobError, match="does not hold a"):
        TrajectoryStore(store).load(put(record))


def test_a_whole_blob_under_a_wrong_name_is_noticed(store, files, put):
    one, other = put(LARGE), store.pack(b"other")
    files.put(one, other.data)
    with pytest.raises(DamagedBlobError, match="checksum"):
        store.get(one)


def test_a_missing_blob_is_damage(store):
    with pytest.raises(DamagedBlobError, match="missing"):
        store.get("ab" * 32)


def test_trajectory_with_and_without_its_pictures(ledger, store):
    trajectories = TrajectoryStore(store)
    seen = trajectory(TASK, reward=1.0, versions=(1, 2), screenshot=b"\x89PNG")
    packed = trajectories.pack(seen)
    (picture,) = packed.pictures
    with ledger.db.write() as connection:
        trajectories.write(connection, packed)
        store.write_shared(connection, packed.pictures, packed.deletions)
    whole = trajectories.load(packed.record.digest, [picture.digest])
    (shown,) = whole.turns[0].observation.pictures
    assert (shown.content_hash, shown.data) == (hashlib.sha256(b"\x89PNG").hexdigest(), b"\x89PNG")
    bare = trajectories.load(packed.record.digest)
    assert bare.turns[0].observation.pictures == [Picture(content_hash=picture.digest)]
    assert (bare.calls, bare.turns[0].actions) == (seen.calls, seen.turns[0].actions)
    assert trajectories.pack(bare).record == packed.record, "a reference stays one"
    assert trajectories.pack(trajectory(TASK)).pictures == []


def test_a_blob_of_something_else_is_damage(store, put):
    with pytest.raises(DamagedBlobError):
        TrajectoryStore(store).load(put(b"\x93\x01\x02\x03"))


def test_a_blob_and_its_row_are_never_without_each_other(ledger):
    """The transaction that fails leaves neither."""
    ledger.groups.admit(plan(rollouts=1))
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    packed = ledger.store.pack(trajectory(TASK))
    with pytest.raises(ZeroDivisionError), ledger.db.write() as connection:
        ledger.store.write(connection, packed)
        raise ZeroDivisionError
    with pytest.raises(DamagedBlobError, match="missing"):
        ledger.store.load(packed.record.digest)
    finish(ledger, lease)


def test_an_unknown_object_store_is_explained():
    with pytest.raises(SetupError, match="blobs_url"):
        ObjectBlobFiles("nosuch://bucket/run")


def test_a_full_disk_is_explained_and_leaves_nothing_half_written(tmp_path):
    files = LocalBlobFiles(tmp_path)
    files.put("ab" * 32, b"small")
    with max_file_size(4096), pytest.raises(SetupError, match=rf"cannot write(.|\n)*{tmp_path}(.|\n)*MB free"):
        files.put("cd" * 32, os.urandom(100_000))
    assert files.get("ab" * 32) == b"small"
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1
