"""Journals of running rollouts: what a torn file still gives, which call counts, and when they are deleted."""

import pytest
from msgspec.structs import replace

from quartet.ledger import Ledger
from quartet.types import Status
from tests.ledger.samples import conversation, finish, plan, trajectory


@pytest.fixture
def leases(ledger: Ledger):
    ledger.groups.admit(plan(rollouts=2))
    return ledger.rollouts.claim("w", 2, 60)


def test_a_torn_or_damaged_call_ends_a_journal(ledger, leases):
    first, second = conversation()
    journal = ledger.run_dir / "journals" / f"{leases[0].rollout_id}.1"
    ledger.journals.append(leases[0], first)
    whole = journal.stat().st_size
    ledger.journals.append(leases[0], second)
    assert ledger.journals.calls(leases[0].rollout_id, 1) == [], "only those of earlier attempts"
    assert ledger.journals.calls(leases[0].rollout_id, 2) == [first, second]
    data = journal.read_bytes()
    for length in range(whole, len(data)):
        journal.write_bytes(data[:length])
        assert ledger.journals.calls(leases[0].rollout_id, 2) == [first]
    journal.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert ledger.journals.calls(leases[0].rollout_id, 2) == [first]


def test_the_newest_attempt_s_call_counts_and_another_policy_s_call_is_another(ledger, leases):
    first, second = conversation()
    again, other = replace(second, prompt_ids=[5]), replace(second, policy="other")
    for attempt, calls in ((1, [first, second, other]), (3, [again])):
        for call in calls:
            ledger.journals.append(replace(leases[0], attempt=attempt), call)
    assert ledger.journals.calls(leases[0].rollout_id, 4) == [first, again, other]
    assert ledger.journals.calls(leases[0].rollout_id, 3) == [first, second, other]


def test_the_calls_of_the_journal_follow_those_of_a_recalled_attempt(ledger, leases):
    first, second = conversation()
    partial = replace(trajectory(leases[0].task, status=Status.CANCELLED), calls=[first])
    ledger.trajectories.recycle(leases[0], partial, 3)
    (again,) = ledger.rollouts.claim("w", 1, 60)
    ledger.journals.append(again, second)
    ledger.rollouts.release(again)
    (last,) = ledger.rollouts.claim("w", 1, 60)
    assert ledger.trajectories.load_beginning(last).calls == [first, second]


def test_a_recalled_call_is_newer_than_that_of_the_journal_before_it(ledger, leases):
    first, second = conversation()
    ledger.journals.append(leases[0], first)
    ledger.journals.append(leases[0], second)
    ledger.rollouts.release(leases[0])
    (again,) = ledger.rollouts.claim("w", 1, 60)
    diverged = replace(first, prompt_ids=[5])
    partial = replace(trajectory(again.task, status=Status.CANCELLED), calls=[diverged])
    ledger.trajectories.recycle(again, partial, 3)
    (last,) = ledger.rollouts.claim("w", 1, 60)
    assert ledger.trajectories.load_beginning(last).calls == [diverged]


def test_journals_of_finished_rollouts_are_deleted(ledger, leases):
    assert ledger.journals.drop_finished() == 0
    for lease in leases:
        ledger.journals.append(lease, conversation()[0])
    finish(ledger, leases[0])
    foreign = ledger.run_dir / "journals" / ".nfs000000000000001"
    foreign.touch()
    assert ledger.journals.drop_finished() == 1
    left = {path.name for path in (ledger.run_dir / "journals").iterdir()}
    assert left == {f"{leases[1].rollout_id}.1", foreign.name}
