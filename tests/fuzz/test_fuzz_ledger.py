"""Demonstrations and records that no Quartet wrote: imported whole, or refused in words; read back, or damaged."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from quartet.errors import QuartetError
from quartet.exchange.demonstrations import settle, store_into
from quartet.exchange.export import export
from quartet.exchange.stored import Selection
from quartet.ledger import Ledger
from quartet.ledger.blobs import DamagedBlobError
from quartet.ledger.soundness import find_flaw
from quartet.types import Purpose, ReplayRule, Task
from tests.fuzz.mutations import as_json, mutated, spliced
from tests.ledger.samples import finish, plan, recipe, spoil, trajectory

pytestmark = pytest.mark.campaign
TASK = Task(env="bandit", family="fixed", seed=1)
RECIPE = recipe(replay={"name": "success_pool", "entries_per_task": 1000}, evaluation={"before_and_after": False})
MANY = settings(max_examples=300)


@pytest.fixture(scope="module")
def run(bandit_policy: Path, tmp_path_factory: pytest.TempPathFactory):
    ledger = Ledger.create(tmp_path_factory.mktemp("imports") / "run")
    ledger.policies.register_initial(str(bandit_policy))
    settle(RECIPE, ledger)
    yield ledger
    ledger.close()


@pytest.fixture(scope="module")
def sound(run: Ledger) -> dict[str, Any]:
    """One exported success."""
    group_id = run.groups.admit(replace(plan(rollouts=1), task=TASK))
    (lease,) = run.rollouts.claim("w", 1, 60)
    finish(run, lease, reward=1.0, versions=(0, 0))
    run.groups.close(group_id)
    file = run.run_dir / "sound.jsonl"
    export(run, RECIPE, "jsonl", file, Selection())
    assert store_into(run, RECIPE, file).stored == 1, "unchanged it is of use"
    return json.loads(file.read_text())


@pytest.fixture(scope="module")
def record(run: Ledger) -> tuple[int, str]:
    """Rollout and digest of a stored record."""
    run.groups.admit(replace(plan(rollouts=1), task=TASK))
    (lease,) = run.rollouts.claim("w", 1, 60)
    finish(run, lease, reward=1.0)
    return lease.rollout_id, spoil(run, lease.rollout_id)[0]


@MANY
@given(data=st.data())
def test_any_file_of_demonstrations_is_imported_or_refused_in_words(
    run: Ledger, sound: dict[str, Any], data: st.DataObject
) -> None:
    file = run.run_dir / "fuzzed.jsonl"
    file.write_bytes(data.draw(spliced(as_json(sound)) | mutated(sound).map(as_json)) + b"\n")
    before = run.pool.usable(TASK, 1)
    try:
        summary = store_into(run, RECIPE, file)
    except QuartetError as error:
        assert str(error)
        assert run.pool.usable(TASK, 1) == before, "nothing of the file is stored"
    else:
        assert summary.stored + summary.known == 1
        _is_trainable(run)


def _is_trainable(run: Ledger) -> None:
    """What is stored can be loaded, joins a group, and is all that a train step asks for."""
    (newest, *_) = run.pool.usable(TASK, 1)
    member = run.pool.load(newest, {Purpose.DEMONSTRATION: ReplayRule.RECOMPUTE})
    assert member is not None and member.trajectory.num_response_tokens
    assert find_flaw(member.trajectory, run.policies.vocabulary_size or 0) is None
    assert not any(call.response.mismatch for call in member.trajectory.calls)


@MANY
@given(data=st.data())
def test_any_record_is_read_back_or_damaged(run: Ledger, record: tuple[int, str], data: st.DataObject) -> None:
    rollout_id, digest = record
    whole = run.store.pack(trajectory(TASK, reward=1.0)).record
    assert whole.digest == digest
    spoil(run, rollout_id, data=data.draw(spliced(whole.data)))
    try:
        loaded = run.store.load(digest)
    except DamagedBlobError as error:
        assert digest in str(error)
    else:
        assert loaded == trajectory(TASK, reward=1.0)
