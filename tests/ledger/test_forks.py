"""Forks in the ledger: children of rollouts and further rounds, exactly once; no child without a parent, no group open
for ever."""

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from quartet.errors import LeaseLostError, LedgerError
from quartet.exchange.stored import Selection, stored_trajectories
from quartet.ledger.blobs import DamagedBlobError
from quartet.ledger.rows import AppendOutcome
from quartet.ledger.schema import rollouts
from quartet.report.check import check_ledger
from quartet.report.totals import run_totals
from quartet.types import FinishReason, Fork, Root, Status
from tests.ledger.samples import conversation, finish, finish_with_calls, plan, spoil, statements, tamper, trajectory

MOST = 8


def running_parent(ledger, *, others: int = 1):
    """The leases of a group, the first of which is to fork."""
    ledger.groups.admit(plan(rollouts=1 + others))
    return ledger.rollouts.claim("w", 1 + others, 60)


def states(ledger) -> dict[int, tuple[str, str]]:
    with ledger.read() as connection:
        rows = connection.execute(sa.select(rollouts).order_by(rollouts.c.id))
        return {row.id: (row.state, row.status) for row in rows}


def test_children_share_the_calls_of_their_parent_up_to_the_fork(ledger):
    parent, _ = running_parent(ledger)
    ids = ledger.forks.add(parent, conversation(3), 0, 2, MOST)
    leases = ledger.rollouts.claim("w", 9, 60)
    assert [lease.rollout_id for lease in leases] == ids and [lease.index for lease in leases] == [2, 3]
    assert {lease.group_id for lease in leases} == {parent.group_id}
    assert len({lease.sampling_seed for lease in (parent, *leases)}) == 3
    for lease in leases:
        assert lease.parent == Fork(rollout_id=parent.rollout_id, call_index=0)
        shared, following = ledger.trajectories.load_beginning(lease).calls
        assert (shared.response_ids, shared.borrowed, shared.own_response.token_ids) == ([0, 3], 5, [])
        assert (following.prompt_ids, following.response_ids) == (conversation(3)[1].prompt_ids, [])
        assert following.finish_reason is FinishReason.ABORT and following.borrowed == len(following.prompt_ids)


def test_a_fork_is_made_once_and_never_beyond_the_bound_of_its_group(ledger):
    parent, other = running_parent(ledger)
    first = ledger.forks.add(parent, conversation(), 0, 2, 3)
    assert ledger.forks.add(parent, conversation(), 0, 2, 3) == first
    assert len(ledger.forks.add(other, conversation(), 0, 2, 3)) == 1, "three in the whole group"
    assert ledger.forks.add(other, conversation(3), 1, 2, 3) == []


def test_a_group_with_children_closes_when_they_have_ended_too(ledger):
    parent, other = running_parent(ledger)
    ledger.forks.add(parent, conversation(), 0, 1, MOST)
    finish_with_calls(ledger, parent, reward=1.0)
    finish_with_calls(ledger, other)
    assert ledger.groups.closable(1e9) == ledger.groups.ended_rounds() == []
    (child,) = ledger.rollouts.claim("w", 1, 60)
    finish_with_calls(ledger, child)
    assert ledger.groups.closable(1e9) == ledger.groups.ended_rounds() == [parent.group_id]
    ledger.groups.close(parent.group_id)
    assert [member.rollout_id for member in ledger.groups.load(parent.group_id).members] == [1, 2, 3]
    assert check_ledger(ledger).findings == []


def retry(ledger, clock, lease):
    finish_with_calls(ledger, lease, status=Status.ERROR_ENV)


def expire(ledger, clock, lease):
    clock.now += 61
    assert ledger.rollouts.expire(3)


def give_back(ledger, clock, lease):
    ledger.rollouts.release(lease)


def resume(ledger, clock, lease):
    assert ledger.rollouts.requeue_all()


@pytest.mark.parametrize("end", [retry, expire, give_back, resume])
def test_children_end_with_the_attempt_that_forked_them(ledger, clock, end):
    """At any depth, whether they are queued, running or finished; the next attempt forks its own."""
    ledger.groups.admit(plan(rollouts=1))
    (parent,) = ledger.rollouts.claim("w", 1, 60)
    finished_id, running_id, _ = ledger.forks.add(parent, conversation(), 0, 3, MOST)
    finished, running = ledger.rollouts.claim("w", 2, 1e6)
    ledger.forks.add(running, conversation(3), 1, 1, MOST)
    finish_with_calls(ledger, finished, reward=1.0)
    assert (finished.rollout_id, running.rollout_id) == (finished_id, running_id)
    end(ledger, clock, parent)
    assert states(ledger) == {1: ("queued", "")} | dict.fromkeys(range(2, 6), ("finished", "cancelled"))
    with pytest.raises(LeaseLostError):
        ledger.forks.add(parent, conversation(), 0, 1, MOST)
    (again,) = ledger.rollouts.claim("w", 9, 60)
    (grandchild,) = ledger.forks.add(again, conversation(), 0, 1, MOST)
    assert finish_with_calls(ledger, running) is AppendOutcome.LATE
    finish_with_calls(ledger, again)
    finish_with_calls(ledger, *ledger.rollouts.claim("w", 9, 60))
    ledger.groups.close(parent.group_id)
    members = [member.rollout_id for member in ledger.groups.load(parent.group_id).members]
    assert members == [parent.rollout_id, grandchild]
    assert check_ledger(ledger).findings == [] and run_totals(ledger).lost == 0


def test_a_recalled_parent_keeps_its_children_until_it_takes_another_way(ledger):
    parent, _ = running_parent(ledger)
    ledger.forks.add(parent, conversation(), 0, 1, MOST)
    partial = replace(trajectory(parent.task, status=Status.CANCELLED), calls=conversation())
    assert ledger.trajectories.recycle(parent, partial, 9) is AppendOutcome.RECYCLED
    (again, child) = ledger.rollouts.claim("w", 2, 60)
    assert child.parent is not None
    ledger.forks.cancel(parent)
    assert states(ledger)[3] == ("leased", ""), "that lease is over"
    ledger.forks.cancel(again)
    assert states(ledger)[3] == ("finished", "cancelled")


def test_children_go_with_a_parent_that_is_recalled_once_too_often(ledger):
    parent, _ = running_parent(ledger)
    ledger.forks.add(parent, conversation(), 0, 1, MOST)
    partial = replace(trajectory(parent.task, status=Status.CANCELLED), calls=conversation())
    assert ledger.trajectories.recycle(parent, partial, 0) is AppendOutcome.EVICTED
    assert states(ledger)[3] == ("finished", "cancelled")


def test_a_group_that_closes_leaves_out_children_whose_parent_has_not_ended(ledger, clock):
    parent, other = running_parent(ledger)
    ledger.forks.add(parent, conversation(), 0, 2, MOST)
    child, slow = ledger.rollouts.claim("w", 2, 1e6)
    finish_with_calls(ledger, child, reward=1.0)
    finish_with_calls(ledger, other)
    clock.now += 100
    assert ledger.groups.closable(99.0) == [parent.group_id]
    ledger.groups.close(parent.group_id)
    assert [member.rollout_id for member in ledger.groups.load(parent.group_id).members] == [other.rollout_id]
    assert ledger.rollouts.held([parent, slow]) == set()
    assert check_ledger(ledger).findings == [] and run_totals(ledger).lost == 0


def test_a_parent_that_failed_for_good_keeps_its_children(ledger):
    """It has a record, and each child holds all its calls itself."""
    parent, other = running_parent(ledger)
    ledger.forks.add(parent, conversation(), 0, 1, MOST)
    ledger.trajectories.append(parent, trajectory(parent.task, status=Status.TRUNCATED_TIME), 3)
    finish_with_calls(ledger, *ledger.rollouts.claim("w", 1, 60))
    finish_with_calls(ledger, other)
    ledger.groups.close(parent.group_id)
    assert [member.rollout_id for member in ledger.groups.load(parent.group_id).members] == [2, 3]
    assert check_ledger(ledger).findings == []


def test_the_deadline_counts_anew_when_a_group_grows(ledger, clock):
    parent, _ = running_parent(ledger)
    clock.now += 90
    ledger.forks.add(parent, conversation(), 0, 1, MOST)
    clock.now += 90
    assert ledger.groups.closable(100.0) == [], "the child was not leased yet"
    ledger.rollouts.claim("w", 1, 60)
    clock.now += 99
    assert ledger.groups.closable(100.0) == []
    clock.now += 1
    assert ledger.groups.closable(100.0) == [parent.group_id]


def test_rounds_follow_each_other_until_there_is_nothing_to_add(ledger):
    group_id = ledger.groups.admit(plan(rollouts=2))
    seen: list[int] = []

    def more(group):
        seen.append(len(group.members))
        best = max(group.members, key=lambda member: member.trajectory.reward).rollout_id
        return [Root(), Fork(rollout_id=best, call_index=1)] if len(group.members) < 4 else []

    for lease in ledger.rollouts.claim("w", 9, 60):
        finish_with_calls(ledger, lease, reward=float(lease.index))
    assert ledger.groups.end_round(group_id, more)
    root, child = ledger.rollouts.claim("w", 9, 60)
    assert (root.parent, child.parent) == (None, Fork(rollout_id=2, call_index=1))
    assert [call.borrowed for call in ledger.trajectories.load_beginning(child).calls] == [5, 9], (
        "the parent made no call after that"
    )
    assert ledger.groups.ended_rounds() == []
    finish_with_calls(ledger, root)
    finish_with_calls(ledger, child)
    assert ledger.groups.ended_rounds() == [group_id]
    assert not ledger.groups.end_round(group_id, more)
    assert (seen, ledger.groups.closed()) == ([2, 4], [group_id])
    assert not ledger.groups.end_round(group_id, lambda group: [Root()]), "it is not open"
    assert not ledger.groups.extend(group_id, [Root()])


@pytest.mark.parametrize("place", [(9, 0), (3, 0), (1, 2), (1, -1)], ids=["unknown", "other_group", "call", "negative"])
def test_a_fork_of_what_is_not_there_is_refused(ledger, place):
    group_id = ledger.groups.admit(plan(rollouts=1))
    ledger.groups.admit(plan(rollouts=2))
    for lease in ledger.rollouts.claim("w", 3, 60):
        finish_with_calls(ledger, lease)
    rollout_id, call_index = place
    with pytest.raises(LedgerError, match="to fork from"):
        ledger.groups.end_round(group_id, lambda group: [Fork(rollout_id=rollout_id, call_index=call_index)])
    assert ledger.groups.ended_rounds()[0] == group_id, "nothing was written"


def test_a_group_that_grows_needs_more_to_close_early(ledger):
    ledger.groups.admit(replace(plan(rollouts=3), enough=2))
    parent, second, third = ledger.rollouts.claim("w", 3, 60)
    ledger.forks.add(parent, conversation(), 0, 1, MOST)
    finish_with_calls(ledger, parent)
    finish_with_calls(ledger, second)
    assert ledger.groups.ended_rounds() == []
    finish_with_calls(ledger, third)
    assert ledger.groups.ended_rounds() == [parent.group_id]


def test_queued_rollouts_that_are_not_wanted_are_cancelled(ledger):
    group_id = ledger.groups.admit(plan(rollouts=1))
    assert ledger.groups.extend(group_id, [Root(), Root()])
    (running,) = ledger.rollouts.claim("w", 1, 60)
    assert ledger.rollouts.cancel([1, 2, 3]) == 2, "one of them is running"
    assert states(ledger) == {1: ("leased", ""), 2: ("finished", "cancelled"), 3: ("finished", "cancelled")}
    finish_with_calls(ledger, running)
    assert ledger.groups.ended_rounds() == [group_id]


def test_a_child_that_lost_what_it_shares_does_not_begin_at_the_start(ledger):
    parent, _ = running_parent(ledger)
    ledger.forks.add(parent, conversation(), 0, 1, MOST)
    (child,) = ledger.rollouts.claim("w", 1, 60)
    tamper(ledger, "DELETE FROM blobs")
    with pytest.raises(DamagedBlobError):
        ledger.trajectories.load_beginning(child)


def test_garbage_collection_keeps_what_children_begin_with(ledger):
    parent, _ = running_parent(ledger)
    ledger.forks.add(parent, conversation(), 0, 1, MOST)
    ledger.disk.collect_garbage()
    assert len(ledger.trajectories.load_beginning(*ledger.rollouts.claim("w", 1, 60)).calls) == 2


def test_a_counted_child_without_its_parents_record_is_a_finding(ledger):
    parent, other = running_parent(ledger)
    ledger.forks.add(parent, conversation(), 0, 1, MOST)
    finish_with_calls(ledger, *ledger.rollouts.claim("w", 1, 60))
    finish_with_calls(ledger, parent)
    finish_with_calls(ledger, other)
    ledger.groups.close(parent.group_id)
    assert check_ledger(ledger).findings == []
    tamper(ledger, "UPDATE trajectories SET kind = 'late' WHERE rollout_id = 1")
    found = {finding.kind: finding.what for finding in check_ledger(ledger).findings}
    assert found["child_without_parent"].startswith("rollout 3 was forked from rollout 1")


def test_a_damaged_parent_leaves_its_children(ledger):
    parent, other = running_parent(ledger)
    ledger.forks.add(parent, conversation(), 0, 1, MOST)
    finish_with_calls(ledger, parent, reward=1.0)
    finish_with_calls(ledger, *ledger.rollouts.claim("w", 1, 60))
    finish(ledger, other)
    ledger.groups.close(parent.group_id)
    spoil(ledger, parent.rollout_id)
    assert [member.rollout_id for member in ledger.groups.load(parent.group_id).members] == [2, 3]
    assert [finding.kind for finding in check_ledger(ledger).findings] == []


def test_children_that_were_cancelled_are_not_waited_for(ledger, clock):
    """The group closes early as if it had never grown, and its deadline goes on."""
    ledger.groups.admit(replace(plan(rollouts=4), enough=2))
    parent, second, third, _ = ledger.rollouts.claim("w", 4, 1000)
    ledger.forks.add(parent, conversation(), 0, 2, MOST)
    finish_with_calls(ledger, second)
    ledger.forks.cancel(parent)
    clock.now += 100
    assert ledger.groups.closable(101.0) == [] and ledger.groups.closable(100.0) == [parent.group_id]
    finish_with_calls(ledger, third)
    assert ledger.groups.ended_rounds() == [parent.group_id]


@pytest.mark.slow
def test_groups_of_cancelled_forks_are_written_last(ledger):
    """Else a fork that fails meanwhile, which holds its row and waits for its group's, and its parent's end would wait
    for each other."""
    parent, _ = running_parent(ledger)
    ledger.forks.add(parent, conversation(), 0, 1, MOST)
    (child,) = ledger.rollouts.claim("w", 1, 60)
    ledger.forks.add(child, conversation(3), 1, 1, MOST)
    with statements() as asked:
        ledger.rollouts.release(parent)
    written = [statement.split()[1] for statement, _ in asked if statement.startswith("UPDATE")]
    assert written.count("groups") == 1 and written[-1] == "groups"
    assert [states(ledger)[rollout_id][1] for rollout_id in (3, 4)] == ["cancelled"] * 2


def test_an_export_says_that_a_finished_fork_was_cancelled(ledger):
    """Its record was written before."""
    parent, _ = running_parent(ledger)
    ledger.forks.add(parent, conversation(), 0, 1, MOST)
    finish_with_calls(ledger, *ledger.rollouts.claim("w", 1, 60), reward=1.0)
    ledger.rollouts.release(parent)
    for pictures in (False, True):
        (stored,) = stored_trajectories(ledger, Selection(screenshots=pictures))
        assert stored.trajectory is not None and stored.trajectory.status is Status.CANCELLED


def test_a_resumed_group_that_had_children_counts_its_deadline_from_its_next_lease(ledger, clock):
    parent, _ = running_parent(ledger)
    ledger.forks.add(parent, conversation(), 0, 2, MOST)
    ledger.rollouts.requeue_all()
    clock.now += 1000
    assert ledger.groups.closable(999.0) == []


def test_a_group_that_changes_while_more_is_asked_is_asked_about_again(ledger):
    group_id = ledger.groups.admit(replace(plan(rollouts=3), enough=2))
    *ended, third = ledger.rollouts.claim("w", 3, 60)
    for lease in ended:
        finish_with_calls(ledger, lease)
    asked: list[int] = []

    def more(group):
        asked.append(len(group.members))
        if len(asked) == 1:
            finish_with_calls(ledger, third, reward=1.0)
        return []

    assert not ledger.groups.end_round(group_id, more)
    assert asked == [2, 3] and ledger.groups.closed() == [group_id]


def test_a_group_that_grows_while_more_is_asked_is_left_open(ledger):
    group_id = ledger.groups.admit(replace(plan(rollouts=3), enough=2))
    *ended, third = ledger.rollouts.claim("w", 3, 60)
    for lease in ended:
        finish_with_calls(ledger, lease)

    def more(group):
        ledger.forks.add(third, conversation(), 0, 1, MOST)
        return []

    assert not ledger.groups.end_round(group_id, more)
    assert ledger.groups.closed() == [] and ledger.statistics.queue_sizes().rollouts["queued"] == 1
