"""Blobs: what is read is what was written, or an error that names the file."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import trajectory

from quartet.data.blobs import BlobStore, DamagedBlobError
from quartet.data.trajectory_store import TrajectoryStore
from quartet.types import Task

TASK = Task(env="bandit", family="left", seed=3, params={"turns": 2})


@settings(max_examples=20, deadline=None)
@given(data=st.binary(max_size=2000))
def test_round_trip(tmp_path_factory, data):
    store = BlobStore(tmp_path_factory.mktemp("blobs"), fsync=True)
    digest = store.put(data)
    assert store.get(digest) == data
    assert store.put(data) == digest


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: b"x" * len(data)])
def test_damage_is_noticed_and_named(tmp_path, damage):
    store = BlobStore(tmp_path)
    digest = store.put(b"some record")
    (path,) = tmp_path.rglob("*.zst")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DamagedBlobError, match=digest[2:]):
        store.get(digest)
    store.put(b"some record")
    assert store.get(digest) == b"some record"


def test_a_whole_file_under_a_wrong_name_is_noticed(tmp_path):
    store = BlobStore(tmp_path)
    one, other = store.put(b"one"), store.put(b"other")
    (tmp_path / one[:2] / f"{one[2:]}.zst").write_bytes((tmp_path / other[:2] / f"{other[2:]}.zst").read_bytes())
    with pytest.raises(DamagedBlobError, match="checksum"):
        store.get(one)


def test_a_missing_blob_is_damage(tmp_path):
    with pytest.raises(DamagedBlobError, match="missing"):
        BlobStore(tmp_path).get("ab" * 32)


def test_trajectory_with_and_without_its_pictures(tmp_path):
    store = TrajectoryStore(BlobStore(tmp_path))
    seen = trajectory(TASK, reward=1.0, versions=(1, 2), screenshot=b"\x89PNG")
    stored = store.save(seen)
    assert store.load(stored.blob, stored.screenshots_blob) == seen
    assert store.load(stored.blob).turns[0].observation.screenshot is None
    assert store.load(stored.blob).calls == seen.calls
    assert store.save(trajectory(TASK)).screenshots_blob is None


def test_a_blob_of_something_else_is_damage(tmp_path):
    store = TrajectoryStore(BlobStore(tmp_path))
    with pytest.raises(DamagedBlobError):
        store.load(store.blobs.put(b"\x93\x01\x02\x03"))


FULL_DISK = """
import os, resource, sys
from pathlib import Path
from quartet.data.blobs import BlobStore
from quartet.errors import SetupError

store = BlobStore(Path(sys.argv[1]))
small = store.put(b"small")
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    store.put(os.urandom(100_000))
except SetupError as error:
    print(error)
assert store.get(small) == b"small"
"""


def test_a_full_disk_is_explained_and_leaves_nothing_half_written(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "cannot write" in done.stdout and "MB free" in done.stdout and str(tmp_path) in done.stdout
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1
