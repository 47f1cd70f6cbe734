"""The success pool: who joins, by which rule, how often, and what the ledger and the trainer make of it."""

import pytest
from msgspec.structs import replace

from quartet.errors import ConfigError
from quartet.ledger import Ledger
from quartet.manager.replay.success_pool import SuccessPool
from quartet.report.check import check_ledger
from quartet.report.staleness import lag_histogram
from quartet.report.totals import run_totals
from quartet.types import Group, GroupMember, GroupState, ReplayRule, Task
from tests.ledger.samples import finish, manager_of, plan, recipe, spoil, trajectory

FAILED = trajectory(Task(env="bandit", family="left", seed=1, params={"turns": 1}))
FAILED_MEMBER = GroupMember(rollout_id=99, trajectory=FAILED)


def rolled_out(ledger: Ledger, *rewards: float, seed: int = 1, family: str = "left") -> int:
    """A finished group, not yet closed."""
    task = Task(env="bandit", family=family, seed=seed, params={"turns": 1})
    group_id = ledger.groups.admit(replace(plan(rollouts=len(rewards)), task=task))
    for lease in ledger.rollouts.claim("w", len(rewards), 60):
        finish(ledger, lease, reward=rewards[lease.index])
    return group_id


def tick(ledger: Ledger, **replay) -> None:
    imitates = replay.get("name") in ("reference", "self_imitation")
    loss = {"terms": ["ppo_clip", "nll"] if imitates else ["ppo_clip"]}
    whole = recipe(replay={"name": "success_pool"} | replay, loss=loss, evaluation={"before_and_after": False})
    ledger.set_value("phase", "judging")  # closes and judges, admits nothing
    with manager_of(whole, ledger) as manager:
        manager.tick()


def claim(ledger: Ledger, groups: int = 1):
    batch = ledger.batches.claim("t", groups, 1, "mask", 60)
    assert batch is not None
    return batch


def members(group: Group) -> list[tuple[float, ReplayRule | None]]:
    return [(member.trajectory.reward, member.replay) for member in group.members]


def test_a_stored_success_joins_a_group_that_failed(ledger):
    rolled_out(ledger, 1.0, 0.0)
    tick(ledger)
    failed = rolled_out(ledger, 0.0, 0.0)
    tick(ledger)
    first, second = claim(ledger, 2).groups
    assert members(first) == [(1.0, None), (0.0, None)]
    assert second.group_id == failed
    assert members(second) == [(0.0, None), (0.0, None), (1.0, ReplayRule.STORED)]


def test_only_of_the_same_task_and_only_when_all_failed(ledger):
    rolled_out(ledger, 1.0, 0.0, seed=1)
    tick(ledger)
    rolled_out(ledger, 0.0, 0.0, seed=2)
    mixed = rolled_out(ledger, 0.0, 1.0, seed=1)
    rolled_out(ledger, 1.0, 1.0, seed=1)
    tick(ledger)
    totals = run_totals(ledger)
    assert totals.groups == {GroupState.DROPPED: 2, GroupState.TRAINABLE: 2}
    assert [(group.group_id, len(group.members)) for group in claim(ledger, 2).groups][1] == (mixed, 2)


def test_reference_data_joins_every_group_as_an_anchor(ledger):
    """Failures, a mixed group and a group whose own success was stored before a crash; never its own member."""
    rolled_out(ledger, 1.0, 0.0)
    tick(ledger)
    rolled_out(ledger, 0.0, 0.0)
    rolled_out(ledger, 0.0, 1.0)
    tick(ledger, name="reference")
    first, second, third = claim(ledger, 3).groups
    assert members(first) == [(1.0, None), (0.0, None)]
    assert members(second) == [(0.0, None), (0.0, None), (1.0, ReplayRule.ANCHOR)]
    assert members(third) == [(0.0, None), (1.0, None), (1.0, ReplayRule.ANCHOR)]
    own = [member.rollout_id for member in third.members]
    assert len(set(own)) == 3


def test_a_success_of_another_task_of_the_family_joins_a_group_that_failed_to_be_imitated(ledger):
    rolled_out(ledger, 1.0, 0.0, seed=1)
    tick(ledger, name="self_imitation")
    failed = rolled_out(ledger, 0.0, 0.0, seed=2)
    rolled_out(ledger, 1.0, 0.0, seed=3)
    tick(ledger, name="self_imitation")
    groups = {group.group_id: group for group in claim(ledger, 3).groups}
    assert members(groups.pop(failed)) == [(0.0, None), (0.0, None), (1.0, ReplayRule.ANCHOR)]
    assert [members(group) for group in groups.values()] == [[(1.0, None), (0.0, None)]] * 2
    assert not check_ledger(ledger).findings


def test_no_success_of_another_family_joins_and_none_joins_more_often_than_allowed(ledger):
    rolled_out(ledger, 1.0, 0.0, family="right")
    tick(ledger, name="self_imitation", max_replays=1)
    rolled_out(ledger, 0.0, 0.0)
    tick(ledger, name="self_imitation", max_replays=1)
    assert run_totals(ledger).dropped_by_reason == {"equal_rewards": 1}
    rolled_out(ledger, 0.0, 0.0, family="right", seed=2)
    rolled_out(ledger, 0.0, 0.0, family="right", seed=3)
    tick(ledger, name="self_imitation", max_replays=1)
    assert run_totals(ledger).dropped_by_reason == {"equal_rewards": 2}


def test_an_anchor_does_not_make_a_group_large_enough(ledger):
    """The minimum is two rollouts; one of them was not countable."""
    rolled_out(ledger, 1.0, 0.0)
    tick(ledger)
    rolled_out(ledger, 0.0)
    tick(ledger, name="reference")
    assert run_totals(ledger).dropped_by_reason == {"too_few_countable": 1}


@pytest.mark.parametrize(
    ("replay", "terms", "refused"),
    [
        ({"demonstrations": "/d.jsonl"}, ["ppo_clip", "nll"], "set replay.demonstration_rule to 'anchor'"),
        ({}, ["ppo_clip"], "no term of loss.terms imitates anchors"),
    ],
)
def test_reference_data_is_imitated_and_never_compared_with_the_group(replay, terms, refused):
    with pytest.raises(ConfigError, match=refused):
        recipe(replay={"name": "reference"} | replay, loss={"terms": terms})


def test_substitution_leaves_the_first_member_out(ledger):
    rolled_out(ledger, 1.0, 0.0)
    rolled_out(ledger, 0.0, 0.0)
    tick(ledger, mode="substitute", rule="recompute")
    rolled_out(ledger, 0.0, 0.0, 0.0)
    tick(ledger, mode="substitute", rule="recompute")
    replayed = claim(ledger, 3).groups
    assert [members(group) for group in replayed[1:]] == [
        [(0.0, None), (1.0, ReplayRule.RECOMPUTE)],
        [(0.0, None), (0.0, None), (1.0, ReplayRule.RECOMPUTE)],
    ]


def test_replays_are_uses_of_their_own_and_bounded(ledger):
    rolled_out(ledger, 1.0, 0.0)
    tick(ledger)
    for _ in range(4):
        rolled_out(ledger, 0.0, 0.0)
        tick(ledger, max_replays=3)
    totals = run_totals(ledger)
    assert (totals.groups[GroupState.TRAINABLE], totals.dropped_by_reason) == (4, {"equal_rewards": 1})
    for step, groups in enumerate((1, 3), start=1):
        ledger.batches.commit(claim(ledger, groups), f"p{step}", {})
    totals = run_totals(ledger)
    assert (totals.replayed, totals.trained_twice, totals.lost) == (3, 0, 0)
    assert check_ledger(ledger).findings == []


def test_a_released_batch_replays_again(ledger):
    rolled_out(ledger, 1.0, 0.0)
    tick(ledger)
    rolled_out(ledger, 0.0, 0.0)
    tick(ledger)
    before = claim(ledger, 2)
    ledger.batches.release(before)
    again = claim(ledger, 2)
    assert again.groups == before.groups
    ledger.batches.commit(again, "policies/v000001", {})
    assert run_totals(ledger).replayed == 1


def test_the_pool_keeps_the_newest_and_draws_by_the_group(ledger):
    pool = SuccessPool(SuccessPool.Settings(), recipe(replay={"name": "success_pool", "entries_per_task": 2}), ledger)
    task = Task(env="bandit", family="left", seed=1, params={"turns": 1})
    for _ in range(3):
        group = ledger.groups.load(rolled_out(ledger, 1.0))
        pool.observe(group)
        pool.observe(group)
    assert ledger.pool.usable(task, 8) == [3, 2]
    many = ledger.groups.load(rolled_out(ledger, 1.0, 1.0, 1.0))
    for _ in range(2):  # killed before the verdict, the group is stored again
        pool.observe(many)
        assert ledger.pool.usable(task, 8) == [6, 5]
    failed = ledger.groups.load(rolled_out(ledger, 0.0, 0.0))
    assert pool.compose(failed) == pool.compose(failed)
    drawn = {pool.compose(replace(failed, group_id=n)).members[-1].rollout_id for n in range(40)}
    assert drawn == {5, 6}


def test_a_damaged_entry_is_marked_and_passed_over(ledger):
    whole = recipe(replay={"name": "success_pool", "choice": "newest"})
    pool = SuccessPool(SuccessPool.Settings(), whole, ledger)
    for _ in range(2):
        pool.observe(ledger.groups.load(rolled_out(ledger, 1.0)))
    failed = ledger.groups.load(rolled_out(ledger, 0.0, 0.0))
    spoil(ledger, 1, 2)
    assert pool.compose(failed) == failed
    assert {event.kind for event in ledger.events()} == {"blob_damaged"}


def test_a_group_without_members_gets_none(ledger):
    pool = SuccessPool(SuccessPool.Settings(), recipe(replay={"name": "success_pool"}), ledger)
    group = ledger.groups.load(rolled_out(ledger, 1.0))
    pool.observe(group)
    assert len(pool.compose(replace(group, members=[FAILED_MEMBER])).members) == 2
    assert pool.compose(replace(group, members=[])).members == []


def test_a_success_that_is_too_old_does_not_join(ledger):
    rolled_out(ledger, 1.0, 0.0)
    tick(ledger)
    ledger.batches.commit(claim(ledger), "policies/v000001", {})
    rolled_out(ledger, 0.0, 0.0)
    tick(ledger, max_lag=0)
    assert run_totals(ledger).dropped_by_reason == {"equal_rewards": 1}
    rolled_out(ledger, 0.0, 0.0)
    tick(ledger, max_lag=1)
    assert run_totals(ledger).groups[GroupState.TRAINABLE] == 1


def test_lag_is_of_fresh_trajectories(ledger):
    rolled_out(ledger, 1.0, 0.0)
    tick(ledger)
    for version in (1, 2, 3):
        ledger.batches.commit(claim(ledger), f"policies/v{version:06d}", {})
        task = Task(env="bandit", family="left", seed=1, params={"turns": 1})
        ledger.groups.admit(replace(plan(), task=task))
        for lease in ledger.rollouts.claim("w", 2, 60):
            finish(ledger, lease, reward=0.0, versions=(version,))
        tick(ledger)
    assert lag_histogram(ledger) == {0: 6}
    assert run_totals(ledger).replayed == 2


def test_a_group_that_lost_its_stored_member_is_dropped(ledger):
    """Found at the claim: without the success there is nothing to compare."""
    rolled_out(ledger, 1.0, 0.0)
    tick(ledger)
    ledger.batches.commit(claim(ledger), "policies/v000001", {})
    failed = rolled_out(ledger, 0.0, 0.0)
    tick(ledger)
    (entry,) = ledger.pool.usable(Task(env="bandit", family="left", seed=1, params={"turns": 1}), 8)
    spoil(ledger, entry, missing=True)
    assert ledger.batches.claim("t", 1, 1, "mask", 60) is None
    assert run_totals(ledger).dropped_by_reason == {"damaged": 1}
    assert ledger.groups.load(failed).members != []


def test_a_damaged_entry_takes_its_own_waiting_group_along(ledger):
    rolled_out(ledger, 1.0, 0.0)
    tick(ledger)
    failed = rolled_out(ledger, 0.0, 0.0)
    spoil(ledger, 1)
    pool = SuccessPool(SuccessPool.Settings(), recipe(replay={"name": "success_pool"}), ledger)
    group = Group(
        group_id=failed, task=Task(env="bandit", family="left", seed=1, params={"turns": 1}), members=[FAILED_MEMBER]
    )
    assert pool.compose(group) == group
    assert run_totals(ledger).dropped_by_reason == {"damaged": 1}
