"""ETTRL: M (1 + B N) rollouts, forked before the most uncertain calls, for the published share of the tokens."""

from itertools import combinations

import pytest
from msgspec.structs import replace
from test_control import context

from quartet.config import Allocator
from quartet.errors import ConfigError
from quartet.manager.control.allocator.ettrl import uncertain_calls
from quartet.registry import build
from quartet.types import Fork, Group, GroupMember, Task, TokenColumns
from tests.ledger.samples import conversation, recipe, trajectory

TASK = Task(env="bandit", family="easy", seed=0)


def rollout(*entropies: float):
    calls = [
        replace(call, response=TokenColumns(token_ids=[0], entropies=[entropy]))
        for call, entropy in zip(conversation(len(entropies)), entropies, strict=True)
    ]
    return replace(trajectory(TASK, reward=0.0), calls=calls)


def group(*trajectories) -> Group:
    members = [GroupMember(rollout_id=number, trajectory=one) for number, one in enumerate(trajectories, 1)]
    return Group(group_id=1, task=TASK, members=members)


def test_forks_share_all_before_the_most_uncertain_calls():
    part = build(Allocator.model_validate({"name": "ettrl"}), context(rollouts_per_group=2))
    first = group(rollout(9.0, 0.1, 0.8, 0.5), rollout(0.2, 0.3))
    assert len(part.plan(TASK)) == 2
    places = [(fork.rollout_id, fork.call_index) for fork in part.more(first)]
    assert places == [(1, 1), (1, 1), (1, 2), (1, 2), (2, 0), (2, 0)], "the first call is never sampled again"
    child = replace(rollout(0.2, 0.3), parent=Fork(rollout_id=1, call_index=1))
    assert part.more(group(*[member.trajectory for member in first.members], child)) == []


@pytest.mark.parametrize(("calls", "children", "share"), [(2, 2, 0.6), (3, 2, 4 / 7)])
def test_a_tree_has_the_published_share_of_the_tokens(calls: int, children: int, share: float):
    """Over all places of `calls` forks among 101 boundaries, a child samples half of the tokens in the mean."""
    length = 100
    cost = [
        length + children * sum(length - place for place in places) for places in combinations(range(0, 101, 10), calls)
    ]
    assert sum(cost) / len(cost) / (length * (1 + calls * children)) == pytest.approx(share)


def test_a_rollout_of_one_call_is_not_forked():
    assert uncertain_calls(rollout(9.0), 2) == []


def test_an_engine_without_entropies_is_refused():
    with pytest.raises(ConfigError, match="needs entropies"):
        recipe(control={"allocator": "ettrl"}, engine={"name": "vllm"})
