"""What children begin with: stored with the fork, counted in the disk budget, deleted when none needs it any more."""

import pytest
from msgspec.structs import replace

from quartet.errors import LeaseLostError
from quartet.ledger.beginnings import pack_child
from quartet.ledger.blobs import DamagedBlobError
from quartet.ledger.growth import grow, next_round
from quartet.manager.retention import Retention
from quartet.report.check import check_ledger
from quartet.types import Fork, Status
from tests.ledger.samples import (
    conversation,
    episode_state,
    finish,
    finish_with_calls,
    plan,
    recipe,
    tamper,
    trajectory,
)

MOST = 8


def parent_of(ledger):
    ledger.groups.admit(plan(rollouts=1))
    (parent,) = ledger.rollouts.claim("w", 1, 60)
    return parent


def files(ledger) -> set[str]:
    return set(ledger.store.blobs.files.digests())


@pytest.mark.parametrize("num_bytes", [100, 200_000], ids=["in_the_database", "in_a_file"])
def test_a_state_is_kept_until_the_last_child_of_its_place_has_ended(ledger, num_bytes):
    parent, state = parent_of(ledger), episode_state(num_bytes)
    ledger.forks.add(parent, conversation(), 0, 2, MOST, state)
    first, second = ledger.rollouts.claim("w", 2, 60)
    assert first.beginning == second.beginning and not first.partial
    size = ledger.disk.beginning_bytes()
    assert num_bytes < size < 2 * num_bytes + 1000, "children of one place share it"
    finish_with_calls(ledger, first)
    assert ledger.disk.drop_beginnings() == 0
    assert ledger.trajectories.load_beginning(second).state == state
    finish_with_calls(ledger, second, status=Status.ERROR_ENV)
    (again,) = ledger.rollouts.claim("w", 1, 60)
    assert ledger.trajectories.load_beginning(again).state == state, "a retry begins there too"
    finish_with_calls(ledger, again)
    assert ledger.disk.beginning_bytes() == size
    assert (ledger.disk.drop_beginnings(), ledger.disk.beginning_bytes(), ledger.disk.drop_beginnings()) == (1, 0, 0)
    with pytest.raises(DamagedBlobError):
        ledger.trajectories.load_beginning(again)
    assert files(ledger) == set() and ledger.disk.collect_garbage() == 0


def test_a_recalled_child_goes_on_with_its_calls_and_from_its_state(ledger):
    parent, state = parent_of(ledger), episode_state()
    ledger.forks.add(parent, conversation(), 0, 1, MOST, state)
    (child,) = ledger.rollouts.claim("w", 1, 60)
    ledger.trajectories.recycle(
        child, replace(trajectory(child.task, status=Status.CANCELLED), calls=conversation(3)), 9
    )
    (again,) = ledger.rollouts.claim("w", 1, 60)
    beginning = ledger.trajectories.load_beginning(again)
    assert (len(beginning.calls), beginning.state) == (3, state)


def test_a_child_that_lost_the_calls_of_its_last_attempt_begins_again_at_its_fork(ledger):
    parent, state = parent_of(ledger), episode_state()
    ledger.forks.add(parent, conversation(), 0, 1, MOST, state)
    (child,) = ledger.rollouts.claim("w", 1, 60)
    (grandchild,) = ledger.forks.add(child, conversation(3), 1, 1, MOST)
    ledger.trajectories.recycle(
        child, replace(trajectory(child.task, status=Status.CANCELLED), calls=conversation(3)), 9
    )
    again, _ = ledger.rollouts.claim("w", 2, 60)
    tamper(ledger, "DELETE FROM blobs WHERE id = (SELECT max(id) FROM blobs)")
    beginning = ledger.trajectories.load_beginning(again)
    assert ([call.key for call in beginning.calls], beginning.state) == (["0", "1"], state)
    assert ledger.events(9)[0].fields["forks"] == [grandchild], "another way is taken"


def test_states_of_cancelled_children_are_released_and_those_of_queued_ones_are_no_garbage(ledger):
    parent = parent_of(ledger)
    ledger.forks.add(parent, conversation(3), 0, 1, MOST, episode_state(200_000))
    assert ledger.disk.collect_garbage() == ledger.disk.drop_beginnings() == 0
    ledger.rollouts.release(parent)
    assert len(files(ledger)) == 1 and ledger.disk.drop_beginnings() == 1 and files(ledger) == set()


def test_a_state_that_is_deleted_while_it_is_stored_again_is_written_again(ledger):
    parent, state = parent_of(ledger), episode_state(200_000)
    ledger.forks.add(parent, conversation(), 0, 1, MOST, state)
    (child,) = ledger.rollouts.claim("w", 1, 60)
    beginning = ledger.trajectories.load_beginning(child)
    packed = pack_child(ledger.store.blobs, Fork(rollout_id=parent.rollout_id, call_index=0), beginning)
    finish_with_calls(ledger, child)
    assert ledger.disk.drop_beginnings() == 1
    with ledger.db.write() as connection:
        grow(ledger.db, connection, parent.group_id, [packed], next_round(parent.group_id))
    assert ledger.trajectories.load_beginning(*ledger.rollouts.claim("w", 1, 60)) == beginning


@pytest.mark.parametrize("num_bytes", [100, 200_000], ids=["in_the_database", "in_a_file"])
def test_a_damaged_beginning_is_a_finding_while_a_child_needs_it(ledger, num_bytes):
    parent = parent_of(ledger)
    children = ledger.forks.add(parent, conversation(), 0, 2, MOST, episode_state(num_bytes))
    assert check_ledger(ledger).findings == []
    tamper(ledger, "DELETE FROM blobs")
    for digest in files(ledger):
        ledger.store.blobs.files.put(digest, b"damaged")
    found = check_ledger(ledger).findings
    assert [finding.kind for finding in found] == ["beginning_damaged"] * 2
    assert all(f"rollout {child}: blob" in finding.what for child, finding in zip(children, found, strict=True))
    for child in ledger.rollouts.claim("w", 2, 60):
        finish_with_calls(ledger, child)
    assert check_ledger(ledger).findings == [], "children that have ended begin nowhere"


def test_a_beginning_that_is_something_else_is_a_finding(ledger):
    parent = parent_of(ledger)
    ledger.forks.add(parent, conversation(), 0, 1, MOST)
    blobs = ledger.store.blobs
    with ledger.db.write() as connection:
        other = blobs.pack(b"no beginning")
        blobs.write(connection, other)
        connection.exec_driver_sql(f"UPDATE rollouts SET beginning = '{other.digest}' WHERE parent_id IS NOT NULL")
    assert [finding.kind for finding in check_ledger(ledger).findings] == ["beginning_damaged"]


def test_a_large_state_whose_fork_is_refused_leaves_no_file(ledger):
    parent = parent_of(ledger)
    ledger.forks.add(parent, conversation(), 0, 1, 1, episode_state(200_000))
    (kept,) = files(ledger)
    assert ledger.forks.add(parent, conversation(3), 1, 1, 1, episode_state(200_000)) == [], "the group is full"
    assert len(ledger.forks.add(parent, conversation(), 0, 1, 1, episode_state(200_000))) == 1, "it forked here before"
    ledger.rollouts.release(parent)
    with pytest.raises(LeaseLostError):
        ledger.forks.add(parent, conversation(), 0, 1, 1, episode_state(200_000))
    assert files(ledger) == {kept}


def test_the_disk_budget_counts_what_children_begin_with(ledger):
    sweeper = Retention(recipe(disk={"max_blob_megabytes": 1}).disk, ledger, ledger.run_dir)
    parent = parent_of(ledger)
    ledger.forks.add(parent, conversation(), 0, 1, MOST, episode_state(1_100_000))
    reason = sweeper.sweep()
    assert reason is not None and "blobs take 1 MB, more than disk.max_blob_megabytes = 1" in reason
    finish(ledger, *ledger.rollouts.claim("w", 1, 60))
    assert sweeper.sweep() is None and files(ledger) == set()
