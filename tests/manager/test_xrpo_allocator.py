"""XRPO: greedy allocation by priority, its budget, and solved examples for groups without a success."""

from math import log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from test_control import NOTHING, context

from quartet.config import Allocator
from quartet.errors import ConfigError
from quartet.ledger.rows import GroupOutcome
from quartet.manager.control.allocator.xrpo import allocate, deviation, half_width
from quartet.registry import build
from quartet.types import Group, GroupMember, Root, Task
from tests.ledger.samples import recipe, trajectory

TASK = Task(env="bandit", family="easy", seed=0)


def more(
    successes: int,
    rollouts: int,
    peers=(),
    *,
    solved: bool = False,
    guidance: str = "examples",
    scale: float = 1.0,
    **settings,
) -> list[Root]:
    """Return the next round of a group; `peers` are (successes, rollouts) of judged groups, `solved` whether another
    task of the family was solved, `scale` the reward of a success."""
    outcomes = [
        GroupOutcome(countable=n, successes=k, mixed=0 < k < n, judged_at_step=0, max_turns=9) for k, n in peers
    ]
    stats = {"easy": replace(NOTHING, outcomes=outcomes)} if outcomes else {}
    seen = replace(
        context(rollouts_per_group=8),
        recipe=recipe(control={"rollouts_per_group": 8}, rollout={"guidance": guidance}),
        statistics=lambda: stats,
        solved_elsewhere=lambda task, count: [trajectory(task, reward=1.0)] * (count if solved else 0),
    )
    xrpo = build(Allocator.model_validate({"name": "xrpo", "peers": 400} | settings), seen)
    members = [
        GroupMember(rollout_id=number, trajectory=replace(member, success=number < successes))
        for number, member in enumerate(trajectory(TASK, reward=scale * (n < successes)) for n in range(rollouts))
    ]
    return list(xrpo.more(Group(group_id=1, task=TASK, members=members)))


def test_the_half_width_is_that_of_students_t():
    """Two of four: s = 1 / sqrt(3), t(3) = 3.182."""
    assert deviation([1, 1, 0, 0]) == pytest.approx(1 / sqrt(3))
    assert half_width(1 / sqrt(3), 4) == pytest.approx(3.182 / sqrt(12))


@given(
    counts=st.lists(st.integers(2, 9), min_size=1, max_size=6),
    budget=st.integers(0, 40),
    spread=st.sampled_from([0.0, 0.3, 0.5]),
    exploration=st.sampled_from([0.0, 0.1]),
)
def test_the_budget_is_spent_exactly_and_no_count_falls(counts, budget, spread, exploration):
    found = allocate(counts, [spread * (number % 2) for number in range(len(counts))], budget, exploration)
    assert sum(found) == sum(counts) + budget
    assert all(after >= before for before, after in zip(counts, found, strict=True))


def test_without_spread_and_exploration_tasks_are_served_in_turn():
    assert allocate([4, 4, 4], [0.0, 0.0, 0.0], 7, 0.0) == [7, 6, 6]


def test_one_more_rollout_goes_to_the_larger_sum_of_gain_and_exploration():
    """An uncertain task gains h(4) - h(5) = 0.20; a certain one explores 0.1 sqrt(log(8) / 2) = 0.10."""
    gain = half_width(0.5774, 4) - half_width(0.5774, 5)
    assert gain == pytest.approx(0.2017, abs=1e-3) and 0.1 * sqrt(log(8) / 2) < gain
    assert allocate([4, 2], [0.5774, 0.0], 1, 0.1) == [5, 2]
    assert allocate([4, 2], [0.5774, 0.0], 1, 1.0) == [4, 3]


def test_an_uncertain_group_gets_more_than_its_share_and_a_solved_one_less():
    peers = [(4, 4), (0, 4), (2, 4), (4, 4)] * 4
    assert len(more(2, 4, peers)) > 4 > len(more(4, 4, peers))
    assert more(2, 4) == [Root()] * 4, "without other groups it has the whole budget"


@pytest.mark.parametrize("scale", [0.0, 0.01, 100.0])
def test_a_group_is_compared_with_its_peers_by_successes_whatever_a_success_is_worth(scale):
    """Equal successes share the budget of 8 per group: with s of rewards, 100 took all of it and 0 took none."""
    peers = [(2, 4)] * 3
    assert len(more(2, 4, peers, exploration=0.0)) == len(more(2, 4, peers, exploration=0.0, scale=scale)) == 4


def test_a_group_that_has_its_share_closes_and_none_grows_beyond_the_maximum():
    peers = [(4, 4)] * 15
    assert len(more(2, 4, peers)) == 8 and len(more(2, 4, peers, max_rollouts=10)) == 6
    assert more(6, 12, peers) == []
    assert more(16, 32, peers, max_rollouts=32) == []


def test_a_group_without_a_success_is_guided_once_if_another_task_was_solved():
    assert more(0, 4, solved=True) == [Root(guided=True)] * 4
    assert more(0, 4, solved=True, guided_rollouts=2) == [Root(guided=True)] * 2
    others = [more(0, 8, solved=True), more(1, 4, solved=True), more(0, 4), more(0, 4, solved=True, guidance="none")]
    assert not any(root.guided for rest in others for root in rest)


def test_contradicting_settings_are_refused():
    xrpo = {"name": "xrpo"}
    with pytest.raises(ConfigError, match="first_rollouts = 4"):
        recipe(control={"rollouts_per_group": 4, "allocator": xrpo})
    with pytest.raises(ConfigError, match="'entropy' may fork a guided rollout"):
        recipe(
            control={"rollouts_per_group": 8, "allocator": xrpo},
            rollout={"brancher": {"name": "entropy"}, "guidance": "examples"},
        )
