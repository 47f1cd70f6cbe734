"""The allocator `screened`: the second round follows from the first rewards, and costs what its docstring says."""

import random

import pytest
from test_control import context

from quartet.config import Allocator
from quartet.errors import ConfigError
from quartet.manager.control.base import RolloutAllocator
from quartet.registry import build
from quartet.types import Group, GroupMember, Task
from tests.ledger.samples import recipe, trajectory

TASK = Task(env="bandit", family="easy", seed=0)


def screened(first: int) -> RolloutAllocator:
    settings = Allocator.model_validate({"name": "screened", "first_rollouts": first})
    return build(settings, context(rollouts_per_group=8))


def added(allocator: RolloutAllocator, rewards: list[float]) -> int:
    """Return the rollouts that are added to a group with these rewards."""
    members = [
        GroupMember(rollout_id=number, trajectory=trajectory(TASK, reward=reward))
        for number, reward in enumerate(rewards)
    ]
    return len(allocator.more(Group(group_id=1, task=TASK, members=members)))


@pytest.mark.parametrize(
    ("rewards", "more"),
    [
        ([0, 0, 0, 0], 0),
        ([1, 1, 1, 1], 0),
        ([0, 0, 0, 1], 4),
        ([1, 1, 0.5, 1], 4),
        ([0, 1, 1], 0),
        ([0, 1, 1, 0, 1], 0),
        ([0, 0, 0, 1, 0, 0, 0, 0], 0),
    ],
)
def test_a_complete_first_round_with_different_rewards_is_followed_by_the_rest_of_the_group(rewards, more):
    allocator = screened(4)
    assert len(allocator.plan(TASK)) == 4
    assert added(allocator, rewards) == more


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("first", [2, 4])
def test_the_mean_cost_of_a_group_is_that_of_the_docstring(first: int, p: float):
    allocator, draw, groups = screened(first), random.Random(0), 4000
    costs = [first + added(allocator, [float(draw.random() < p) for _ in range(first)]) for _ in range(groups)]
    mean = first + (1 - p**first - (1 - p) ** first) * (8 - first)
    assert sum(costs) / groups == pytest.approx(mean, abs=0.2)


def test_a_first_round_that_is_the_whole_group_is_refused():
    with pytest.raises(ConfigError, match="first_rollouts = 8"):
        recipe(control={"rollouts_per_group": 8, "allocator": {"name": "screened", "first_rollouts": 8}})


@pytest.mark.parametrize("rule", ["redundancy", "early_stop"])
@pytest.mark.parametrize("allocator", ["screened", "dars"])
def test_a_straggler_rule_that_ends_the_first_round_early_is_refused(allocator: str, rule: str):
    with pytest.raises(ConfigError, match=f"{rule!r} ends rounds early.*{allocator!r} would have no second round"):
        recipe(control={"rollouts_per_group": 8, "allocator": {"name": allocator}}, straggler={"name": rule})
