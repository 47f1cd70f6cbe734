"""Pictures: one blob each, however many rollouts saw it; read late, and never deleted while a row needs it."""

import hashlib
import os
import signal
import subprocess
import sys

import pytest
import sqlalchemy as sa

from quartet.crash_points import VARIABLE
from quartet.exchange.export import export
from quartet.exchange.jsonl import read_jsonl
from quartet.exchange.stored import Selection
from quartet.ledger import blobs
from quartet.ledger.blob_files import LocalBlobFiles
from quartet.ledger.blobs import LARGEST_IN_DATABASE_BYTES
from quartet.ledger.pictures import pictures_of
from quartet.ledger.schema import pictures, trajectories
from quartet.report.check import check_ledger
from quartet.types import Picture, Trajectory
from tests.ledger.samples import finish, plan, recipe, saw, trainable_group

SMALL = b"\x89PNG small"
LARGE = os.urandom(2 * LARGEST_IN_DATABASE_BYTES)


def claimed(ledger):
    ledger.groups.admit(plan(rollouts=1))
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    return lease


def loaded(ledger, rollout_id: int) -> Trajectory:
    """With the pictures that are there."""
    with ledger.read() as connection:
        row = connection.execute(sa.select(trajectories).where(trajectories.c.rollout_id == rollout_id)).one()
        digests = pictures_of(connection, [row.id])[row.id]
    return ledger.store.load(row.blob, digests)


def train_one(ledger) -> None:
    ledger.batches.commit(ledger.batches.claim("t", 1, 100, "mask", 60), "p", {})


def files(ledger) -> set[str]:
    return set(ledger.store.blobs.files.digests())


@pytest.mark.parametrize("picture", [SMALL, LARGE], ids=["small", "large"])
def test_a_picture_that_is_shown_again_is_written_once(ledger, monkeypatch, picture):
    put, written = LocalBlobFiles.put, []

    def counting(self, digest: str, data: bytes) -> None:
        written.append(digest)
        put(self, digest, data)

    monkeypatch.setattr(LocalBlobFiles, "put", counting)
    for _ in range(2):
        lease = claimed(ledger)
        ledger.trajectories.append(lease, saw(lease, picture, picture, final=picture), 3)
        whole = loaded(ledger, lease.rollout_id)
        assert whole.final_observation is not None
        assert [one.data for one in whole.turns[0].observation.pictures] == [picture, picture]
        assert [one.data for one in whole.final_observation.pictures] == [picture]
    assert len(written) == (picture is LARGE)
    with ledger.read() as connection:
        rows = connection.execute(sa.select(pictures.c.digest)).scalars().all()
    assert rows == [hashlib.sha256(picture).hexdigest()] * 2
    assert check_ledger(ledger).findings == []


@pytest.mark.slow
def test_a_batch_is_claimed_and_read_without_its_pictures(ledger):
    group_id = trainable_group(ledger, screenshot=LARGE)
    for digest in files(ledger):
        ledger.store.blobs.files.delete(digest)
    assert len(ledger.groups.load(group_id).members) == 2
    batch = ledger.batches.claim("t", 1, 1, "mask", 60)
    (shown,) = batch.groups[0].members[0].trajectory.turns[0].observation.pictures
    assert shown == Picture(content_hash=hashlib.sha256(LARGE).hexdigest())


def test_pictures_are_read_late_by_their_hashes(ledger):
    lease = claimed(ledger)
    ledger.trajectories.append(lease, saw(lease, SMALL, LARGE), 3)
    wanted = [hashlib.sha256(data).hexdigest() for data in (LARGE, SMALL)]
    assert list(ledger.store.load_pictures(wanted).values()) == [LARGE, SMALL]


def test_the_pool_keeps_the_pictures_of_its_successes(ledger):
    trainable_group(ledger, screenshot=LARGE)
    train_one(ledger)
    ledger.pool.store(plan().task, [2], keep=1)
    assert ledger.disk.drop_pictures(9, checkpoint_step=1) == (1, 0), "the other member's reference alone"
    assert loaded(ledger, 2).turns[0].observation.pictures[0].data == LARGE
    assert ledger.disk.drop_pictures(9, checkpoint_step=1) == (0, 0)
    ledger.pool.store(plan().task, [1], keep=1)  # takes the place of rollout 2
    rollouts, freed = ledger.disk.drop_pictures(9, checkpoint_step=1)
    assert rollouts == 1 and freed > len(LARGE) - 1000 and files(ledger) == set()
    assert check_ledger(ledger).findings == []


def test_what_a_roll_back_would_train_again_keeps_its_pictures(ledger):
    trainable_group(ledger, screenshot=LARGE)
    train_one(ledger)
    assert ledger.disk.drop_pictures(9, checkpoint_step=0) == (0, 0)
    assert ledger.disk.drop_pictures(9, checkpoint_step=1)[0] == 2


def test_a_picture_that_goes_while_another_rollout_is_about_to_refer_to_it_is_written_anew(ledger):
    trainable_group(ledger, screenshot=LARGE)
    train_one(ledger)
    lease = claimed(ledger)
    seen = saw(lease, LARGE)
    packed = ledger.store.pack(seen)
    assert ledger.disk.drop_pictures(9, checkpoint_step=1)[1] and files(ledger) == set()
    assert packed.deletions < ledger.store.blobs.deletions()
    ledger.trajectories.append(lease, seen, 3, packed=[packed])
    assert loaded(ledger, lease.rollout_id).turns[0].observation.pictures[0].data == LARGE
    assert check_ledger(ledger).findings == []


def test_a_picture_whose_deletion_was_interrupted_is_written_anew(ledger):
    """The file is gone, and the transaction that deleted it has not been committed."""
    trainable_group(ledger, screenshot=LARGE)
    lease = claimed(ledger)
    seen = saw(lease, LARGE)
    packed = ledger.store.pack(seen)
    with pytest.raises(KeyboardInterrupt), ledger.store.blobs.deletion() as connection:
        ledger.store.blobs.delete(connection, files(ledger))
        raise KeyboardInterrupt
    assert files(ledger) == set()
    ledger.trajectories.append(lease, seen, 3, packed=[packed])
    assert loaded(ledger, lease.rollout_id).turns[0].observation.pictures[0].data == LARGE


def test_more_pictures_are_deleted_than_one_query_may_name(ledger, monkeypatch):
    monkeypatch.setattr(blobs, "_BLOBS_PER_QUERY", 2)
    lease = claimed(ledger)
    ledger.trajectories.append(lease, saw(lease, *(LARGE + bytes([number]) for number in range(5))), 3)
    ledger.groups.close(1)
    ledger.groups.drop(1, "too_few_countable")
    assert ledger.disk.drop_pictures(9, checkpoint_step=0)[1] > 5 * len(LARGE) - 5000
    assert files(ledger) == set()


def test_no_file_is_asked_for_while_the_ledger_is_locked(ledger, monkeypatch):
    """In an object store that takes as long as many transactions."""
    lease = claimed(ledger)
    seen = saw(lease, LARGE)
    packed = ledger.store.pack(seen)
    monkeypatch.setattr(LocalBlobFiles, "holds", None)
    ledger.trajectories.append(lease, seen, 3, packed=[packed])
    assert loaded(ledger, lease.rollout_id).turns[0].observation.pictures[0].data == LARGE


def test_bytes_count_once_and_are_freed_once(ledger):
    first = ledger.disk.blob_bytes()[0]
    trainable_group(ledger, screenshot=LARGE)
    total, newest = ledger.disk.blob_bytes()
    assert len(LARGE) < total - first < 1.2 * len(LARGE)
    trainable_group(ledger, screenshot=LARGE)
    assert ledger.disk.blob_bytes(after=newest)[0] < 10_000


def test_an_export_brings_pictures_into_another_ledger(ledger, tmp_path):
    lease = claimed(ledger)
    ledger.trajectories.append(lease, saw(lease, SMALL, LARGE, final=SMALL), 3)
    export(ledger, recipe(), "jsonl", tmp_path / "x.jsonl", Selection(screenshots=True))
    ((_, record),) = read_jsonl(tmp_path / "x.jsonl")
    assert ledger.disk.drop_pictures(9, checkpoint_step=0) == (0, 0), "its group is open"
    assert ledger.pool.store_demonstrations([record.trajectory], keep=1) == 1
    assert loaded(ledger, 2) == loaded(ledger, 1) == record.trajectory


WORKER = """
import sys
from pathlib import Path
from msgspec.structs import replace
from quartet.ledger import Ledger
from quartet.types import Observation, Picture, Status, Trajectory, Turn

ledger = Ledger.open(Path(sys.argv[1]))
if sys.argv[2] == "append":
    (lease,) = ledger.rollouts.claim("doomed", 1, 60)
    end = Observation(goal="", text="", pictures=[Picture(data=Path(sys.argv[3]).read_bytes())])
    record = Trajectory(
        task=lease.task, status=Status.COMPLETED, calls=[], turns=[], final_observation=end, rewards={}, success=False
    )
    ledger.trajectories.append(lease, record, 3)
else:
    ledger.disk.drop_pictures(9, checkpoint_step=1)
"""


def killed_at(ledger, tmp_path, point: str, what: str) -> None:
    """Let a process of its own do it, and be killed at this point."""
    (tmp_path / "points").mkdir()
    (tmp_path / "points" / point).touch()
    (tmp_path / "picture").write_bytes(LARGE)
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(ledger.run_dir), what, str(tmp_path / "picture")],
        env=os.environ | {VARIABLE: str(tmp_path / "points")},
        check=False,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("point", ["blob.after", "trajectories.append.before"])
def test_a_kill_between_the_blob_and_its_row_loses_nothing(ledger, tmp_path, point):
    ledger.groups.admit(plan(rollouts=1))
    killed_at(ledger, tmp_path, point, "append")
    assert len(files(ledger)) == 1, "the picture is there, its row is not"
    assert check_ledger(ledger).findings == []
    ledger.rollouts.requeue_all()
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    ledger.trajectories.append(lease, saw(lease, LARGE), 3)
    assert loaded(ledger, lease.rollout_id).turns[0].observation.pictures[0].data == LARGE
    assert ledger.disk.collect_garbage() == 0


@pytest.mark.slow
def test_a_kill_between_the_rows_and_their_blob_leaves_garbage_only(ledger, tmp_path):
    trainable_group(ledger, screenshot=LARGE)
    train_one(ledger)
    killed_at(ledger, tmp_path, "disk.drop_pictures.after", "drop")
    assert len(files(ledger)) == 1, "the blob is there, its rows are not"
    assert check_ledger(ledger).findings == []
    assert loaded(ledger, 1).turns[0].observation.pictures[0].data == b""
    assert ledger.disk.collect_garbage() == 1 and files(ledger) == set()
    finish(ledger, claimed(ledger), screenshot=LARGE)
    assert check_ledger(ledger).findings == []
