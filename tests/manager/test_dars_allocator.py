"""DARS: the second round of its released code, and that the group's sum of advantages reaches the target."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_control import context

from quartet.config import Allocator
from quartet.errors import ConfigError
from quartet.manager.control.allocator.dars import second_round
from quartet.registry import build
from quartet.types import Group, GroupMember, Task
from tests.ledger.samples import recipe, trajectory

TASK = Task(env="bandit", family="easy", seed=0)


def grown(successes: int, rollouts: int, **settings) -> int:
    """Return the rollouts that are added to a group with `rollouts` members, in groups of 8."""
    dars = build(Allocator.model_validate({"name": "dars"} | settings), context(rollouts_per_group=8))
    assert len(dars.plan(TASK)) == 8
    members = [
        GroupMember(rollout_id=number, trajectory=trajectory(TASK, reward=float(number < successes)))
        for number in range(rollouts)
    ]
    return len(dars.more(Group(group_id=1, task=TASK, members=members)))


@pytest.mark.parametrize(
    ("successes", "equal", "hard"), [(0, 24, 56), (1, 11, 24), (2, 3, 8), (3, 1, 3), (4, 0, 0), (8, 0, 0)]
)
def test_the_second_round_is_that_of_the_released_code(successes: int, equal: int, hard: int):
    assert grown(successes, 8) == equal
    assert grown(successes, 8, schedule="hard", max_rollouts=64) == hard


@pytest.mark.parametrize("rollouts", [7, 9, 32])
def test_there_is_one_second_round_and_only_after_a_complete_first_one(rollouts: int):
    assert grown(0, rollouts) == 0


@given(rollouts=st.integers(2, 64), successes=st.integers(0, 64))
def test_the_sum_of_advantages_reaches_the_target_and_with_one_rollout_less_it_does_not(rollouts: int, successes: int):
    rate = min(successes, rollouts) / rollouts
    more, used = second_round(rate, rollouts, "equal"), rate or 0.5 / rollouts
    each = 2 * used * (1 - used)
    if rate >= 0.5:
        assert more == 0
    else:
        assert (rollouts + more) * each >= rollouts / 2 - 1e-6
        assert (rollouts + more - 1) * each < rollouts / 2


def test_a_maximum_below_the_first_round_is_refused():
    with pytest.raises(ConfigError, match="max_rollouts = 4"):
        recipe(control={"rollouts_per_group": 8, "allocator": {"name": "dars", "max_rollouts": 4}})
