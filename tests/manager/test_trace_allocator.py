"""TRACE: probabilities of different outcomes, the two greedy allocations, and the counting predictor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from test_control import context

from quartet.config import Allocator
from quartet.errors import ConfigError
from quartet.manager.control.allocator.trace import allocate_forks, allocate_roots, root_value
from quartet.manager.control.success_predictor import SuccessPredictor, histories
from quartet.registry import build
from quartet.types import Fork, Group, GroupMember, Observation, Task, Turn
from tests.ledger.samples import recipe, trajectory

TASK = Task(env="bandit", family="easy", seed=0)


def rollout(number: int, presses: str, reward: float) -> GroupMember:
    """A rollout with one turn per letter of `presses`; every observation is its index."""
    turns = [
        Turn(observation=Observation(goal="", text=str(index)), call_index=index, response=press)
        for index, press in enumerate(presses)
    ]
    return GroupMember(rollout_id=number, trajectory=replace(trajectory(TASK, reward=reward), turns=turns))


def group(*members: GroupMember) -> Group:
    return Group(group_id=1, task=TASK, members=list(members))


def trace(**settings):
    return build(Allocator.model_validate({"name": "trace"} | settings), context(rollouts_per_group=8))


@pytest.mark.parametrize(("chance", "rollouts", "value"), [(0.5, 2, 0.5), (0.5, 4, 0.875), (0.1, 4, 0.3438)])
def test_the_value_of_roots(chance: float, rollouts: int, value: float):
    assert root_value(chance, rollouts) == pytest.approx(value)


def test_two_forks_differ_from_their_rollout_with_probability_three_quarters():
    """r = 1 and V = 0.5, so `same` is 0.5: gains 0.5 and 0.25. With V = 1 no fork gains anything."""
    assert allocate_forks([[0.5]], 9, 0.2) == [(0, 0), (0, 0)]
    assert allocate_forks([[0.5]], 9, 0.3) == [(0, 0)]
    assert allocate_forks([[1.0], []], 9, 0.01) == []


def test_forks_go_to_the_least_certain_call_of_each_rollout_in_turn():
    assert allocate_forks([[0.9, 0.5], [0.6, 0.8]], 4, 0.0) == [(0, 1), (1, 0), (0, 1), (1, 0)]


@given(chances=st.lists(st.floats(0, 1), min_size=1, max_size=8), mean=st.integers(2, 6))
def test_the_roots_sum_to_the_budget_within_the_bounds(chances: list[float], mean: int):
    found = allocate_roots(chances, mean * len(chances), 16)
    assert sum(found) == min(mean, 16) * len(chances) or max(found) == 16
    assert min(found) >= 2 and max(found) <= 16


def test_roots_go_to_tasks_that_seldom_succeed_or_fail_and_not_to_certain_ones():
    sure, rare, even = allocate_roots([1.0, 0.1, 0.5], 18, 16)
    assert sure == 2 and rare > even > 2


def test_the_prediction_is_the_shrunk_share_of_the_beginning_and_a_rollout_counts_once():
    """One of four: 0.25 with the leaves 1 0 0 0, here shrunk by 1 towards 1/2: (1 + 0.5) / 5 = 0.3."""
    predictor, leaves = SuccessPredictor(9, 1.0), [rollout(n, "ab" if n < 2 else "cb", float(n == 0)) for n in range(4)]
    for _ in range(2):
        predictor.observe(group(*leaves))
    assert predictor.chance(("easy",)) == pytest.approx(0.3)
    assert predictor.chance(("easy", "a", "1")) == pytest.approx((1 + 0.3) / 3)
    assert predictor.chance(("easy", "c", "1")) == pytest.approx(0.3 / 3)
    assert predictor.chance(("easy", "z", "1")) == pytest.approx(0.3), "an unknown history has that of its beginning"
    assert predictor.chance(("hard",)) == 0.5


def test_the_oldest_rollouts_are_forgotten():
    predictor = SuccessPredictor(2, 1.0)
    predictor.observe(group(rollout(1, "ab", 1.0), rollout(2, "ab", 0.0), rollout(3, "ab", 0.0)))
    assert predictor.chance(("easy",)) == pytest.approx(0.5 / 3)


def test_a_group_is_forked_once_where_the_outcome_is_not_certain():
    """After the first press `a` both outcomes were seen, after `b` only failures: V is 0.42 and 0.17."""
    part = trace(mean_roots=4, min_gain=0.2)
    assert len(part.plan(TASK)) == 4, "all families are alike at first"
    first = group(rollout(1, "abx", 1.0), rollout(2, "aby", 0.0), rollout(3, "bbx", 0.0), rollout(4, "bby", 0.0))
    found = part.more(first)
    assert len(found) == 4 and Fork(rollout_id=1, call_index=0) in found
    assert {fork.rollout_id for fork in found} == {1, 2}
    assert part.more(first) == found, "the call is repeated after a crash"
    parent = found[0]
    child = replace(rollout(5, "abx", 1.0), trajectory=replace(rollout(5, "abx", 1.0).trajectory, parent=parent))
    assert part.more(group(*first.members, child)) == []


def test_a_group_without_a_countable_rollout_is_not_forked():
    """Records may be lost between the end of a round and the decision."""
    assert trace().more(group()) == []


def test_histories_are_alternately_actions_and_observations():
    assert list(histories(rollout(1, "abc", 1.0).trajectory)) == [
        ("easy",),
        ("easy", "a", "1"),
        ("easy", "a", "1", "b", "2"),
    ]


def test_more_roots_than_rollouts_are_refused():
    with pytest.raises(ConfigError, match="mean_roots = 9"):
        recipe(control={"rollouts_per_group": 8, "allocator": {"name": "trace", "mean_roots": 9}})
