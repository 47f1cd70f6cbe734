"""Forks in the ledger: children of rollouts and further rounds, exactly once; no child without a parent, no group open
for ever."""

import pytest
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy import event

from quartet.errors import LeaseLostError, LedgerError
from quartet.ledger.blobs import DamagedBlobError
from quartet.ledger.export import Selection
from quartet.ledger.rows import AppendOutcome
from quartet.ledger.schema import rollouts
from quartet.types import FinishReason, Fork, Root, Status
from tests.ledger.samples import conversation, finish, finish_with_calls, plan, spoil, tamper, trajectory

MOST = 8


def running_parent(ledger, *, others: int = 1):
    """The leases of a group, the first of which is to fork."""
    ledger.admit(plan(rollouts=1 + others))
    return ledger.claim_rollouts("w", 1 + others, 60)


def states(ledger) -> dict[int, tuple[str, str]]:
    with ledger.read() as connection:
        rows = connection.execute(sa.select(rollouts).order_by(rollouts.c.id))
        return {row.id: (row.state, row.status) for row in rows}


def test_children_share_the_calls_of_their_parent_up_to_the_fork(ledger):
    parent, _ = running_parent(ledger)
    ids = ledger.fork(parent, conversation(3), 0, 2, MOST)
    leases = ledger.claim_rollouts("w", 9, 60)
    assert [lease.rollout_id for lease in leases] == ids and [lease.index for lease in leases] == [2, 3]
    assert {lease.group_id for lease in leases} == {parent.group_id}
    assert len({lease.sampling_seed for lease in (parent, *leases)}) == 3
    for lease in leases:
        assert lease.parent == Fork(rollout_id=parent.rollout_id, call_index=0)
        shared, following = ledger.load_beginning(lease).calls
        assert (shared.response_ids, shared.borrowed, shared.own_response.token_ids) == ([0, 3], 5, [])
        assert (following.prompt_ids, following.response_ids) == (conversation(3)[1].prompt_ids, [])
        assert following.finish_reason is FinishReason.ABORT and following.borrowed == len(following.prompt_ids)


def test_a_fork_is_made_once_and_never_beyond_the_bound_of_its_group(ledger):
    parent, other = running_parent(ledger)
    first = ledger.fork(parent, conversation(), 0, 2, 3)
    assert ledger.fork(parent, conversation(), 0, 2, 3) == first
    assert len(ledger.fork(other, conversation(), 0, 2, 3)) == 1, "three in the whole group"
    assert ledger.fork(other, conversation(3), 1, 2, 3) == []


def test_a_group_with_children_closes_when_they_have_ended_too(ledger):
    parent, other = running_parent(ledger)
    ledger.fork(parent, conversation(), 0, 1, MOST)
    finish_with_calls(ledger, parent, reward=1.0)
    finish_with_calls(ledger, other)
    assert ledger.closable(1e9) == ledger.ended_rounds() == []
    (child,) = ledger.claim_rollouts("w", 1, 60)
    finish_with_calls(ledger, child)
    assert ledger.closable(1e9) == ledger.ended_rounds() == [parent.group_id]
    ledger.close_group(parent.group_id)
    assert [member.rollout_id for member in ledger.load_group(parent.group_id).members] == [1, 2, 3]
    assert ledger.check().findings == []


def retry(ledger, clock, lease):
    finish_with_calls(ledger, lease, status=Status.ERROR_ENV)


def expire(ledger, clock, lease):
    clock.now += 61
    assert ledger.expire_leases(3)


def give_back(ledger, clock, lease):
    ledger.give_back(lease)


def resume(ledger, clock, lease):
    assert ledger.end_leases()


@pytest.mark.parametrize("end", [retry, expire, give_back, resume])
def test_children_end_with_the_attempt_that_forked_them(ledger, clock, end):
    """At any depth, whether they are queued, running or finished; the next attempt forks its own."""
    ledger.admit(plan(rollouts=1))
    (parent,) = ledger.claim_rollouts("w", 1, 60)
    finished_id, running_id, _ = ledger.fork(parent, conversation(), 0, 3, MOST)
    finished, running = ledger.claim_rollouts("w", 2, 1e6)
    ledger.fork(running, conversation(3), 1, 1, MOST)
    finish_with_calls(ledger, finished, reward=1.0)
    assert (finished.rollout_id, running.rollout_id) == (finished_id, running_id)
    end(ledger, clock, parent)
    assert states(ledger) == {1: ("queued", "")} | dict.fromkeys(range(2, 6), ("finished", "cancelled"))
    with pytest.raises(LeaseLostError):
        ledger.fork(parent, conversation(), 0, 1, MOST)
    (again,) = ledger.claim_rollouts("w", 9, 60)
    (grandchild,) = ledger.fork(again, conversation(), 0, 1, MOST)
    assert finish_with_calls(ledger, running) is AppendOutcome.LATE
    finish_with_calls(ledger, again)
    finish_with_calls(ledger, *ledger.claim_rollouts("w", 9, 60))
    ledger.close_group(parent.group_id)
    members = [member.rollout_id for member in ledger.load_group(parent.group_id).members]
    assert members == [parent.rollout_id, grandchild]
    assert ledger.check().findings == [] and ledger.totals().lost == 0


def test_a_recalled_parent_keeps_its_children_until_it_takes_another_way(ledger):
    parent, _ = running_parent(ledger)
    ledger.fork(parent, conversation(), 0, 1, MOST)
    partial = replace(trajectory(parent.task, status=Status.CANCELLED), calls=conversation())
    assert ledger.recycle(parent, partial, 9) is AppendOutcome.RECYCLED
    (again, child) = ledger.claim_rollouts("w", 2, 60)
    assert child.parent is not None
    ledger.drop_forks(parent)
    assert states(ledger)[3] == ("leased", ""), "that lease is over"
    ledger.drop_forks(again)
    assert states(ledger)[3] == ("finished", "cancelled")


def test_children_go_with_a_parent_that_is_recalled_once_too_often(ledger):
    parent, _ = running_parent(ledger)
    ledger.fork(parent, conversation(), 0, 1, MOST)
    partial = replace(trajectory(parent.task, status=Status.CANCELLED), calls=conversation())
    assert ledger.recycle(parent, partial, 0) is AppendOutcome.EVICTED
    assert states(ledger)[3] == ("finished", "cancelled")


def test_a_group_that_closes_leaves_out_children_whose_parent_has_not_ended(ledger, clock):
    parent, other = running_parent(ledger)
    ledger.fork(parent, conversation(), 0, 2, MOST)
    child, slow = ledger.claim_rollouts("w", 2, 1e6)
    finish_with_calls(ledger, child, reward=1.0)
    finish_with_calls(ledger, other)
    clock.now += 100
    assert ledger.closable(99.0) == [parent.group_id]
    ledger.close_group(parent.group_id)
    assert [member.rollout_id for member in ledger.load_group(parent.group_id).members] == [other.rollout_id]
    assert ledger.held([parent, slow]) == set()
    assert ledger.check().findings == [] and ledger.totals().lost == 0


def test_a_parent_that_failed_for_good_keeps_its_children(ledger):
    """It has a record, and each child holds all its calls itself."""
    parent, other = running_parent(ledger)
    ledger.fork(parent, conversation(), 0, 1, MOST)
    ledger.append(parent, trajectory(parent.task, status=Status.TRUNCATED_TIME), 3)
    finish_with_calls(ledger, *ledger.claim_rollouts("w", 1, 60))
    finish_with_calls(ledger, other)
    ledger.close_group(parent.group_id)
    assert [member.rollout_id for member in ledger.load_group(parent.group_id).members] == [2, 3]
    assert ledger.check().findings == []


def test_the_deadline_counts_anew_when_a_group_grows(ledger, clock):
    parent, _ = running_parent(ledger)
    clock.now += 90
    ledger.fork(parent, conversation(), 0, 1, MOST)
    clock.now += 90
    assert ledger.closable(100.0) == [], "the child was not leased yet"
    ledger.claim_rollouts("w", 1, 60)
    clock.now += 99
    assert ledger.closable(100.0) == []
    clock.now += 1
    assert ledger.closable(100.0) == [parent.group_id]


def test_rounds_follow_each_other_until_there_is_nothing_to_add(ledger):
    group_id = ledger.admit(plan(rollouts=2))
    seen: list[int] = []

    def more(group):
        seen.append(len(group.members))
        best = max(group.members, key=lambda member: member.trajectory.reward).rollout_id
        return [Root(), Fork(rollout_id=best, call_index=1)] if len(group.members) < 4 else []

    for lease in ledger.claim_rollouts("w", 9, 60):
        finish_with_calls(ledger, lease, reward=float(lease.index))
    assert ledger.end_round(group_id, more)
    root, child = ledger.claim_rollouts("w", 9, 60)
    assert (root.parent, child.parent) == (None, Fork(rollout_id=2, call_index=1))
    assert [call.borrowed for call in ledger.load_beginning(child).calls] == [5, 9], (
        "the parent made no call after that"
    )
    assert ledger.ended_rounds() == []
    finish_with_calls(ledger, root)
    finish_with_calls(ledger, child)
    assert ledger.ended_rounds() == [group_id]
    assert not ledger.end_round(group_id, more)
    assert (seen, ledger.closed_groups()) == ([2, 4], [group_id])
    with pytest.raises(LedgerError, match="not open"):
        ledger.end_round(group_id, lambda group: [Root()])
    assert not ledger.extend(group_id, [Root()])


@pytest.mark.parametrize("place", [(9, 0), (3, 0), (1, 2), (1, -1)], ids=["unknown", "other_group", "call", "negative"])
def test_a_fork_of_what_is_not_there_is_refused(ledger, place):
    group_id = ledger.admit(plan(rollouts=1))
    ledger.admit(plan(rollouts=2))
    for lease in ledger.claim_rollouts("w", 3, 60):
        finish_with_calls(ledger, lease)
    rollout_id, call_index = place
    with pytest.raises(LedgerError, match="to fork from"):
        ledger.end_round(group_id, lambda group: [Fork(rollout_id=rollout_id, call_index=call_index)])
    assert ledger.ended_rounds()[0] == group_id, "nothing was written"


def test_a_group_that_grows_needs_more_to_close_early(ledger):
    ledger.admit(replace(plan(rollouts=3), enough=2))
    parent, second, third = ledger.claim_rollouts("w", 3, 60)
    ledger.fork(parent, conversation(), 0, 1, MOST)
    finish_with_calls(ledger, parent)
    finish_with_calls(ledger, second)
    assert ledger.ended_rounds() == []
    finish_with_calls(ledger, third)
    assert ledger.ended_rounds() == [parent.group_id]


def test_queued_rollouts_that_are_not_wanted_are_cancelled(ledger):
    group_id = ledger.admit(plan(rollouts=1))
    assert ledger.extend(group_id, [Root(), Root()])
    (running,) = ledger.claim_rollouts("w", 1, 60)
    assert ledger.cancel([1, 2, 3]) == 2, "one of them is running"
    assert states(ledger) == {1: ("leased", ""), 2: ("finished", "cancelled"), 3: ("finished", "cancelled")}
    finish_with_calls(ledger, running)
    assert ledger.ended_rounds() == [group_id]


def test_a_child_that_lost_what_it_shares_does_not_begin_at_the_start(ledger):
    parent, _ = running_parent(ledger)
    ledger.fork(parent, conversation(), 0, 1, MOST)
    (child,) = ledger.claim_rollouts("w", 1, 60)
    tamper(ledger, "DELETE FROM blobs")
    with pytest.raises(DamagedBlobError):
        ledger.load_beginning(child)


def test_garbage_collection_keeps_what_children_begin_with(ledger):
    parent, _ = running_parent(ledger)
    ledger.fork(parent, conversation(), 0, 1, MOST)
    ledger.collect_garbage()
    assert len(ledger.load_beginning(*ledger.claim_rollouts("w", 1, 60)).calls) == 2


def test_a_counted_child_without_its_parents_record_is_a_finding(ledger):
    parent, other = running_parent(ledger)
    ledger.fork(parent, conversation(), 0, 1, MOST)
    finish_with_calls(ledger, *ledger.claim_rollouts("w", 1, 60))
    finish_with_calls(ledger, parent)
    finish_with_calls(ledger, other)
    ledger.close_group(parent.group_id)
    assert ledger.check().findings == []
    tamper(ledger, "UPDATE trajectories SET kind = 'late' WHERE rollout_id = 1")
    found = {finding.kind: finding.what for finding in ledger.check().findings}
    assert found["child_without_parent"].startswith("rollout 3 was forked from rollout 1")


def test_a_damaged_parent_leaves_its_children(ledger):
    parent, other = running_parent(ledger)
    ledger.fork(parent, conversation(), 0, 1, MOST)
    finish_with_calls(ledger, parent, reward=1.0)
    finish_with_calls(ledger, *ledger.claim_rollouts("w", 1, 60))
    finish(ledger, other)
    ledger.close_group(parent.group_id)
    spoil(ledger, parent.rollout_id)
    assert [member.rollout_id for member in ledger.load_group(parent.group_id).members] == [2, 3]
    assert [finding.kind for finding in ledger.check().findings] == []


def test_children_that_were_cancelled_are_not_waited_for(ledger, clock):
    """The group closes early as if it had never grown, and its deadline goes on."""
    ledger.admit(replace(plan(rollouts=4), enough=2))
    parent, second, third, _ = ledger.claim_rollouts("w", 4, 1000)
    ledger.fork(parent, conversation(), 0, 2, MOST)
    finish_with_calls(ledger, second)
    ledger.drop_forks(parent)
    clock.now += 100
    assert ledger.closable(101.0) == [] and ledger.closable(100.0) == [parent.group_id]
    finish_with_calls(ledger, third)
    assert ledger.ended_rounds() == [parent.group_id]


def test_groups_of_cancelled_forks_are_written_last(ledger):
    """Else a fork that fails meanwhile, which holds its row and waits for its group's, and its parent's end would wait
    for each other."""
    parent, _ = running_parent(ledger)
    ledger.fork(parent, conversation(), 0, 1, MOST)
    (child,) = ledger.claim_rollouts("w", 1, 60)
    ledger.fork(child, conversation(3), 1, 1, MOST)
    asked: list[str] = []
    event.listen(ledger._database._engine, "before_cursor_execute", lambda *call: asked.append(call[2]))
    ledger.give_back(parent)
    written = [statement.split()[1] for statement in asked if statement.startswith("UPDATE")]
    assert written.count("groups") == 1 and written[-1] == "groups"
    assert [states(ledger)[rollout_id][1] for rollout_id in (3, 4)] == ["cancelled"] * 2


def test_an_export_says_that_a_finished_fork_was_cancelled(ledger):
    """Its record was written before."""
    parent, _ = running_parent(ledger)
    ledger.fork(parent, conversation(), 0, 1, MOST)
    finish_with_calls(ledger, *ledger.claim_rollouts("w", 1, 60), reward=1.0)
    ledger.give_back(parent)
    for pictures in (False, True):
        (stored,) = ledger.stored_trajectories(Selection(screenshots=pictures))
        assert stored.trajectory is not None and stored.trajectory.status is Status.CANCELLED


def test_a_resumed_group_that_had_children_counts_its_deadline_from_its_next_lease(ledger, clock):
    parent, _ = running_parent(ledger)
    ledger.fork(parent, conversation(), 0, 2, MOST)
    ledger.end_leases()
    clock.now += 1000
    assert ledger.closable(999.0) == []


def test_a_group_that_changes_while_more_is_asked_is_asked_about_again(ledger):
    group_id = ledger.admit(replace(plan(rollouts=3), enough=2))
    *ended, third = ledger.claim_rollouts("w", 3, 60)
    for lease in ended:
        finish_with_calls(ledger, lease)
    asked: list[int] = []

    def more(group):
        asked.append(len(group.members))
        if len(asked) == 1:
            finish_with_calls(ledger, third, reward=1.0)
        return []

    assert not ledger.end_round(group_id, more)
    assert asked == [2, 3] and ledger.closed_groups() == [group_id]


def test_a_group_that_grows_while_more_is_asked_is_left_open(ledger):
    group_id = ledger.admit(replace(plan(rollouts=3), enough=2))
    *ended, third = ledger.claim_rollouts("w", 3, 60)
    for lease in ended:
        finish_with_calls(ledger, lease)

    def more(group):
        ledger.fork(third, conversation(), 0, 1, MOST)
        return []

    assert not ledger.end_round(group_id, more)
    assert ledger.closed_groups() == [] and ledger.queue_sizes().rollouts["queued"] == 1
