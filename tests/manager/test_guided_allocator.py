"""Agent-RLVR's second round: only after a complete group of failures, and only if guidance can be removed again."""

import pytest
from test_control import context

from quartet.config import Allocator
from quartet.errors import ConfigError
from quartet.registry import build
from quartet.types import Group, GroupMember, Root, Task
from tests.ledger.samples import finish, manager_of, recipe, trajectory

TASK = Task(env="bandit", family="easy", seed=0)
GUIDED = {"allocator": {"name": "guided", "guided_rollouts": 2}, "rollouts_per_group": 3}
HINT = {"name": "text", "texts": {"easy": "press left"}}


@pytest.mark.parametrize(
    ("rewards", "more"), [([0, 0, 0], 2), ([0, 0, 1], 0), ([0, 0], 0), ([0, 0, 0, 0, 0], 0), ([0, 0, 0, 1], 0)]
)
def test_only_a_complete_group_of_failures_is_guided(rewards: list[float], more: int):
    allocator = build(Allocator.model_validate(GUIDED["allocator"]), context(rollouts_per_group=3))
    members = [
        GroupMember(rollout_id=number, trajectory=trajectory(TASK, reward=float(reward)))
        for number, reward in enumerate(rewards)
    ]
    assert allocator.plan(TASK) == [Root()] * 3
    assert allocator.more(Group(group_id=1, task=TASK, members=members)) == [Root(guided=True)] * more


def test_the_leases_of_the_second_round_are_guided(ledger):
    with manager_of(recipe(control=GUIDED, rollout={"guidance": HINT}, train={"groups_per_batch": 1}), ledger) as one:
        while one.tick():
            pass
        leases = [lease for lease in ledger.rollouts.claim("w", 100, 60) if lease.group_id == 1]
        assert [lease.guided for lease in leases] == [False] * 3
        for lease in leases:
            finish(ledger, lease, reward=0.0)
        while one.tick():
            pass
        leases = [lease for lease in ledger.rollouts.claim("w", 100, 60) if lease.group_id == 1]
        assert [(lease.index, lease.guided) for lease in leases] == [(3, True), (4, True)]


@pytest.mark.parametrize(
    ("rollout", "message"),
    [
        ({}, "has no guidance to give"),
        ({"guidance": HINT, "loop": "alternate"}, "cannot be removed from the prompts of the loop 'alternate'"),
        ({"guidance": HINT, "loop": "screens", "history": "summary"}, "with the history 'summary'"),
        ({"guidance": HINT, "brancher": "entropy"}, "'entropy' may fork a guided rollout"),
    ],
)
def test_a_recipe_that_would_train_the_guidance_is_refused(rollout: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        recipe(control=GUIDED, rollout=rollout)
