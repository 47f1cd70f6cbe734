"""Large blobs in a real object store: written whole, verified, collected, and missed as damage."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from quartet.errors import LedgerUnreachableError, SetupError
from quartet.ledger import Ledger
from quartet.ledger.blobs import LARGEST_IN_DATABASE_BYTES, DamagedBlobError
from quartet.ledger.object_blobs import ObjectBlobFiles, drop_objects
from quartet.report.check import check_ledger
from quartet.types import Observation, Picture, Turn
from tests.ledger.s3 import BUCKET, needs_s3, s3_server
from tests.ledger.samples import plan, trajectory

pytestmark = [needs_s3, pytest.mark.slow]
LARGE = os.urandom(2 * LARGEST_IN_DATABASE_BYTES)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as url:
        yield url


@pytest.fixture
def ledger(tmp_path: Path, bucket: str) -> Iterator[Ledger]:
    ledger = Ledger.create(tmp_path / "run", blobs_url=bucket)
    ledger.policies.register_initial("policies/v000000")
    yield ledger
    ledger.close()


def large_one(ledger: Ledger, picture: bytes) -> int:
    """A stored rollout whose picture is an object; returns its group."""
    group_id = ledger.groups.admit(plan(rollouts=1))
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    seen = Turn(
        observation=Observation(goal="", text="", pictures=[Picture(data=picture)]), call_index=0, response="click"
    )
    ledger.trajectories.append(lease, structs.replace(trajectory(lease.task), turns=[seen]), 3)
    return group_id


def findings(ledger: Ledger) -> list[str]:
    return [finding.kind for finding in check_ledger(ledger).findings if finding.kind != "policy_missing"]


def test_what_is_read_is_what_was_written_also_by_another_process(ledger: Ledger) -> None:
    files = ledger.store.blobs.files
    blob = ledger.store.blobs.pack(LARGE)
    other = Ledger.open(ledger.run_dir)
    assert other.store.blobs.get(blob.digest) == LARGE
    assert files.holds(blob.digest, len(blob.data)) and not files.holds(blob.digest, len(blob.data) - 1)
    other.store.blobs.files.delete(blob.digest)
    assert not files.holds(blob.digest, len(blob.data)), "nothing is remembered of an object"
    files.delete(blob.digest)
    other.close()


@pytest.mark.parametrize("damage", [None, b"", b"damaged"])
def test_an_object_that_is_gone_or_changed_is_damage(ledger: Ledger, damage: bytes | None) -> None:
    large_one(ledger, LARGE)
    assert findings(ledger) == []
    files = ledger.store.blobs.files
    (digest,) = files.digests()
    files.delete(digest) if damage is None else files.put(digest, damage)
    with pytest.raises(DamagedBlobError, match=digest):
        ledger.store.blobs.get(digest)
    assert findings(ledger) == ["blob_damaged"]


def test_garbage_is_collected_and_only_that_of_the_run(ledger: Ledger, tmp_path: Path, bucket: str) -> None:
    other = Ledger.create(tmp_path / "other" / "run", blobs_url=bucket)
    other.policies.register_initial("policies/v000000")
    large_one(ledger, LARGE)
    large_one(other, LARGE)
    orphan = ledger.store.blobs.pack(os.urandom(2 * LARGEST_IN_DATABASE_BYTES))
    files = ledger.store.blobs.files
    assert len(list(files.digests())) == 2
    assert ledger.disk.collect_garbage() == 1
    assert orphan.digest not in list(files.digests()) and findings(ledger) == []
    drop_objects(ledger.run_dir)
    assert list(files.digests()) == [] and len(list(other.store.blobs.files.digests())) == 1
    other.close()


def test_a_bucket_that_does_not_exist_is_noticed_before_the_run_begins(tmp_path: Path, bucket: str) -> None:
    with pytest.raises(SetupError, match=r"nosuch(.|\n)*create the bucket"):
        Ledger.create(tmp_path / "run", blobs_url=bucket.replace(BUCKET, "nosuch"))
    assert not (tmp_path / "run").exists()


def test_a_store_that_does_not_answer_is_no_damage(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost network must not mark records as damaged."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    files = ObjectBlobFiles(f"{bucket}/away?")
    with pytest.raises(LedgerUnreachableError, match="does not answer"):
        files.get("ab" * 32)
