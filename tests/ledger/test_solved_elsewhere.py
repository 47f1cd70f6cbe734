"""Successes on other tasks of a family, from which solved examples are made."""

from msgspec.structs import replace

from quartet.types import Purpose, Task
from tests.ledger.samples import finish, plan


def played(ledger, seed: int, *rewards: float, family: str = "left", purpose: Purpose = Purpose.TRAIN) -> Task:
    """End a group of one task with these rewards."""
    of_family = plan(family, rollouts=len(rewards), purpose=purpose)
    task = replace(of_family.task, seed=seed)
    ledger.groups.admit(replace(of_family, task=task))
    for lease, reward in zip(ledger.rollouts.claim("w", len(rewards), 60), rewards, strict=True):
        finish(ledger, lease, reward=reward)
    return task


def test_the_newest_success_of_each_other_task_of_the_family_is_found(ledger):
    task = played(ledger, 0, 1.0)
    for seed, rewards in enumerate([(1.0, 0.0), (0.0, 0.0), (1.0, 1.0)], start=1):
        played(ledger, seed, *rewards)
    played(ledger, 9, 1.0, family="right")
    played(ledger, 8, 1.0, purpose=Purpose.EVAL)
    found = ledger.pool.solved_elsewhere(task, 5)
    assert [(one.task.seed, one.success) for one in found] == [(3, True), (1, True)]
    assert [one.task.seed for one in ledger.pool.solved_elsewhere(task, 1)] == [3]
    assert ledger.pool.solved_elsewhere(task, 0) == []
