"""Rounds on a real manager: an allocator adds to a group until it wants no more, also after a crash in between."""

import pytest

from quartet.errors import ConfigError
from quartet.manager.control.base import RolloutAllocator
from quartet.report.totals import run_totals
from quartet.types import Fork, Root, Status
from tests.ledger.samples import finish, manager_of, recipe


class UntilSolved(RolloutAllocator):
    """Two rollouts at first, then one more with the start of the first member, until one succeeds or there are five."""

    may_fork = True

    def plan(self, task):
        return [Root()] * 2

    def more(self, group):
        solved = any(member.trajectory.success for member in group.members)
        if solved or len(group.members) >= 5:
            return []
        return [Fork(rollout_id=group.members[0].rollout_id, call_index=0)]


class Undeclared(UntilSolved):
    """Forks without saying so."""

    may_fork = False


def settle(manager) -> None:
    while manager.tick():
        pass


def rounds(**sections):
    return recipe(control={"allocator": "test_rounds:UntilSolved"}, train={"groups_per_batch": 1}, **sections)


def play(ledger, *rewards: float, **fields) -> int:
    """End what is queued of one group; return how many there were."""
    leases = ledger.rollouts.claim("w", 100, 60)
    group_id = min(lease.group_id for lease in leases)
    mine = [lease for lease in leases if lease.group_id == group_id]
    for lease in leases:
        if lease not in mine:
            ledger.rollouts.release(lease)
    for lease, reward in zip(mine, rewards, strict=True):
        finish(ledger, lease, reward=reward, **fields)
    return len(mine)


def test_a_group_grows_round_by_round_and_closes_when_nothing_is_added(ledger):
    with manager_of(rounds(), ledger) as manager:
        settle(manager)
        assert play(ledger, 0.0, 0.0) == 2
        settle(manager)
        assert ledger.statistics.queue_sizes().groups["trainable"] == 0
        assert play(ledger, 0.0) == 1
    with manager_of(rounds(), ledger) as manager:  # another manager goes on with the group
        settle(manager)
        assert play(ledger, 1.0) == 1
        settle(manager)
        assert ledger.statistics.queue_sizes().groups["trainable"] == 1
    members = ledger.groups.load(1).members
    assert [member.trajectory.success for member in members] == [False, False, False, True]


@pytest.mark.slow
def test_the_allocator_bounds_its_rounds(ledger):
    with manager_of(rounds(), ledger) as manager:
        for number in (2, 1, 1, 1):
            settle(manager)
            assert play(ledger, *[0.0] * number) == number
        settle(manager)
    assert run_totals(ledger).dropped_by_reason == {"equal_rewards": 1}


@pytest.mark.parametrize("status", [Status.ERROR_ENV, Status.DIVERGED, Status.TRUNCATED_TIME])
def test_rounds_end_once_eight_rollouts_have_failed_and_three_times_as_many_as_count(ledger, status):
    """The allocator sees the same two members each time, and asks for the same round each time."""
    with manager_of(rounds(), ledger) as manager:
        settle(manager)
        assert play(ledger, 0.0, 0.0) == 2
        for _ in range(8):
            settle(manager)
            assert run_totals(ledger).dropped_by_reason == {}
            assert play(ledger, 0.0, status=status, max_attempts=1) == 1
        settle(manager)
    assert run_totals(ledger).dropped_by_reason == {"equal_rewards": 1}


def test_a_first_round_without_a_countable_rollout_is_the_last_one(ledger):
    with manager_of(rounds(), ledger) as manager:
        settle(manager)
        assert play(ledger, 0.0, 0.0, status=Status.ERROR_ENV, max_attempts=1) == 2
        settle(manager)
    assert run_totals(ledger).dropped_by_reason == {"too_few_countable": 1}


def test_forks_of_an_allocator_that_declares_none_are_refused(ledger):
    with manager_of(recipe(control={"allocator": "test_rounds:Undeclared"}), ledger) as manager:
        settle(manager)
        play(ledger, 0.0, 0.0)
        with pytest.raises(ConfigError, match="test_rounds:Undeclared' forks, but does not declare it"):
            settle(manager)


def test_a_group_out_of_time_gets_no_further_round(ledger, clock):
    with manager_of(rounds(admission={"group_deadline_seconds": 50.0, "max_lag": 1}), ledger) as manager:
        settle(manager)
        first, _ = [lease for lease in ledger.rollouts.claim("w", 100, 1e6) if lease.group_id == 1]
        finish(ledger, first)
        clock.now += 51
        settle(manager)
    assert run_totals(ledger).dropped_by_reason["too_few_countable"] >= 1
