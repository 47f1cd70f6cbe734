"""Leases of rollouts: order, fencing, retries, late arrivals."""

import time
from contextlib import closing

import pytest

from quartet.errors import LeaseLostError
from quartet.ledger import Ledger
from quartet.ledger.rows import AppendOutcome
from quartet.report.totals import run_totals, status_counts
from quartet.types import Purpose, Root, Status
from tests.ledger.samples import finish, plan, trainable_group


def test_evaluation_is_claimed_first_then_the_oldest(ledger):
    ledger.groups.admit(plan("old"))
    ledger.evaluations.admit("before", [plan("held-out", rollouts=1, purpose=Purpose.EVAL, tag="before")])
    ledger.groups.admit(plan("new"))
    leases = ledger.rollouts.claim("w", 4, 10)
    assert [lease.task.family for lease in leases] == ["held-out", "old", "old", "new"]
    assert [lease.index for lease in leases] == [0, 0, 1, 0]
    assert leases[1].task.params == {"turns": 1}


def test_a_retry_draws_the_same_random_numbers(ledger, clock):
    ledger.groups.admit(plan(rollouts=8))
    first = ledger.rollouts.claim("w", 8, 10)
    assert len({lease.sampling_seed for lease in first}) == 8
    clock.now += 11
    assert ledger.rollouts.expire() == 8
    second = ledger.rollouts.claim("w", 8, 10)
    assert [lease.sampling_seed for lease in second] == [lease.sampling_seed for lease in first]
    assert all(lease.attempt == 2 for lease in second)


def test_a_renewed_lease_lives_on(ledger, clock):
    ledger.groups.admit(plan(rollouts=1))
    (lease,) = ledger.rollouts.claim("w", 1, 10)
    clock.now += 9
    ledger.rollouts.renew(lease, 10)
    clock.now += 9
    assert ledger.rollouts.expire() == 0
    assert finish(ledger, lease) is AppendOutcome.APPENDED


def test_append_without_the_lease_is_refused_and_the_record_is_kept(ledger, clock):
    ledger.groups.admit(plan(rollouts=1))
    (asleep,) = ledger.rollouts.claim("asleep", 1, 10)
    clock.now += 11
    ledger.rollouts.expire()
    with pytest.raises(LeaseLostError):
        ledger.rollouts.renew(asleep, 10)
    (awake,) = ledger.rollouts.claim("awake", 1, 10)
    with pytest.raises(LeaseLostError):
        finish(ledger, asleep, reward=1.0)
    assert finish(ledger, awake) is AppendOutcome.APPENDED
    with pytest.raises(LeaseLostError):
        finish(ledger, awake)
    assert run_totals(ledger).attempts == {"final": 1, "superseded": 2}
    assert ledger.events(1)[0].kind == "rollout_superseded"


def test_infrastructure_errors_are_retried_a_bounded_number_of_times(ledger):
    ledger.groups.admit(plan(rollouts=1))
    outcomes = []
    for _ in range(3):
        (lease,) = ledger.rollouts.claim("w", 1, 10)
        outcomes.append(finish(ledger, lease, status=Status.ERROR_ENV, max_attempts=3))
    assert outcomes == [AppendOutcome.REQUEUED, AppendOutcome.REQUEUED, AppendOutcome.APPENDED]
    assert ledger.rollouts.claim("w", 1, 10) == []
    assert status_counts(ledger) == {"error_env": 1}
    assert run_totals(ledger).attempts == {"final": 1, "retried": 2}


def test_a_rollout_that_kills_its_workers_is_given_up(ledger, clock):
    ledger.groups.admit(plan(rollouts=1))
    for _ in range(2):
        assert ledger.rollouts.claim("w", 1, 10)
        clock.now += 11
        ledger.rollouts.expire(max_attempts=2)
    assert ledger.rollouts.claim("w", 1, 10) == []
    assert status_counts(ledger) == {"cancelled": 1}


def test_rollout_finished_after_the_deadline_is_late(ledger, clock):
    group_id = ledger.groups.admit(plan(rollouts=2))
    quick, slow = ledger.rollouts.claim("w", 2, 1000)
    finish(ledger, quick)
    assert ledger.groups.closable(180) == []
    clock.now += 180
    assert ledger.groups.closable(180) == [group_id]
    ledger.groups.close(group_id)
    assert finish(ledger, slow, reward=1.0) is AppendOutcome.LATE
    assert [member.rollout_id for member in ledger.groups.load(group_id).members] == [quick.rollout_id]
    ledger.groups.close(group_id)
    assert ledger.groups.closed() == [group_id]


def test_groups_that_the_end_of_training_drops_are_not_closed_or_extended(ledger):
    """The manager reads the groups to close in one transaction, and closes each in another."""
    ids = [ledger.groups.admit(plan(rollouts=1)) for _ in range(2)]
    for lease in ledger.rollouts.claim("w", 2, 1000):
        finish(ledger, lease)
    ended, growing = ledger.groups.closable(180)
    ledger.groups.cancel_unfinished()
    ledger.groups.close(ended)
    assert not ledger.groups.end_round(growing, lambda group: [Root()])
    assert [ended, growing] == ids and ledger.groups.closed() == []


def test_evaluations_have_no_deadline(ledger, clock):
    ledger.evaluations.admit("before", [plan(rollouts=1, purpose=Purpose.EVAL, tag="before")])
    clock.now += 10_000
    assert ledger.groups.closable(180) == []
    assert ledger.evaluations.unfinished("before") == 1
    (lease,) = ledger.rollouts.claim("w", 1, 10)
    finish(ledger, lease, reward=1.0)
    assert ledger.evaluations.unfinished("before") == 0
    assert ledger.evaluations.results("before") == {"left": (1, 1, 0)}
    assert ledger.groups.ahead() == 0


def test_a_lease_given_back_is_free_at_once(ledger):
    ledger.groups.admit(plan(rollouts=1))
    (lease,) = ledger.rollouts.claim("w", 1, 10)
    ledger.rollouts.release(lease)
    (again,) = ledger.rollouts.claim("w", 1, 10)
    ledger.rollouts.release(lease)
    assert finish(ledger, again) is AppendOutcome.APPENDED


def test_a_lease_given_back_consumes_no_attempt_and_fences_all_the_same(ledger, clock):
    ledger.groups.admit(plan(rollouts=1))
    for attempt in range(1, 6):
        (lease,) = ledger.rollouts.claim("stopping", 1, 10)
        assert lease.attempt == attempt
        ledger.rollouts.release(lease)
        with pytest.raises(LeaseLostError):
            ledger.rollouts.renew(lease, 10)
    (lease,) = ledger.rollouts.claim("w", 1, 10)
    assert finish(ledger, lease, status=Status.ERROR_ENV, max_attempts=3) is AppendOutcome.REQUEUED
    ledger.rollouts.claim("dies", 1, 10)
    clock.now += 11
    assert ledger.rollouts.expire(max_attempts=3) == 1
    (lease,) = ledger.rollouts.claim("w", 1, 10)
    assert finish(ledger, lease, status=Status.ERROR_ENV, max_attempts=3) is AppendOutcome.APPENDED


@pytest.mark.parametrize("jump_seconds", [-3600, 3600])
def test_a_wall_clock_that_jumps_neither_ends_nor_prolongs_a_lease(tmp_path, url, monkeypatch, jump_seconds):
    """With the real clocks: those of the database, and a wall clock that every process reads."""
    wall_clock = time.time
    with closing(Ledger.create(tmp_path / "run", url=url)) as ledger:
        ledger.policies.register_initial("policies/v000000")
        trainable_group(ledger)
        ledger.groups.admit(plan(rollouts=1))
        (lease,) = ledger.rollouts.claim("w", 1, 600)
        batch = ledger.batches.claim("trainer", 1, 2, "mask", 600)
    assert batch
    monkeypatch.setattr(time, "time", lambda: wall_clock() + jump_seconds)
    with closing(Ledger.open(tmp_path / "run")) as ledger:
        assert (ledger.rollouts.expire(), ledger.batches.expire(), ledger.groups.closable(600)) == (0, 0, [])
        ledger.rollouts.renew(lease, 0.01)
        ledger.batches.renew(batch, 0.01)
        time.sleep(0.1)
        assert (ledger.rollouts.expire(), ledger.batches.expire(), len(ledger.groups.closable(0.01))) == (1, 1, 1)


def test_a_resume_ends_all_leases_and_begins_the_deadlines_of_groups_again(ledger, clock):
    group_id = ledger.groups.admit(plan(rollouts=1))
    ledger.rollouts.claim("dead", 1, 1000)
    clock.now += 1000
    assert ledger.rollouts.requeue_all() == 1
    assert ledger.groups.closable(180) == []
    ledger.rollouts.claim("w", 1, 1000)
    clock.now += 180
    assert ledger.groups.closable(180) == [group_id]


def test_a_resume_ends_all_leases(ledger):
    ledger.groups.admit(plan(rollouts=3))
    ledger.rollouts.claim("dead", 2, 1000)
    assert ledger.rollouts.requeue_all() == 2
    assert len(ledger.rollouts.claim("w", 3, 10)) == 3


def test_the_end_of_training_drops_what_is_open(ledger):
    ledger.groups.admit(plan(rollouts=2))
    (lease,) = ledger.rollouts.claim("w", 1, 10)
    assert ledger.groups.cancel_unfinished() == 1
    assert finish(ledger, lease) is AppendOutcome.LATE
    assert ledger.rollouts.claim("w", 5, 10) == []
    assert run_totals(ledger).dropped_by_reason == {"training_ended": 1}
