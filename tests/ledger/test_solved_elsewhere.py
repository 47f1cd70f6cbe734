"""Successes on other tasks of a family, from which solved examples are made."""

from contextlib import closing

from msgspec.structs import replace

from benchmarks.database_work import recorded
from quartet.ledger import Ledger
from quartet.types import Purpose, ReplayRule, Task
from tests.ledger.samples import finish, on_sqlite, plan, tamper, trajectory

RULES = dict.fromkeys(Purpose, ReplayRule.STORED)


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


def test_a_success_whose_record_was_deleted_is_left_out_and_still_counts(ledger):
    task = played(ledger, 0, 1.0)
    for seed in (1, 2):
        played(ledger, seed, 1.0)
    tamper(ledger, "UPDATE trajectories SET blob = '', blob_bytes = 0 WHERE id = 3")
    assert [one.task.seed for one in ledger.pool.solved_elsewhere(task, 5)] == [1]
    assert not [event for event in ledger.events() if event.kind == "blob_damaged"]


def test_the_pool_of_a_family_leaves_out_families_with_a_longer_name(ledger):
    """`left/1` has keys that begin like those of `left` with seed 1 and parameters; LIKE of SQLite ignores case."""
    tasks = [Task(env="bandit", family=family, seed=2) for family in ("left", "left/1", "leftover", "LEFT", "l%t")]
    for task in tasks:
        ledger.pool.store_demonstrations([trajectory(task, reward=1.0)], 8)
        ledger.pool.store_demonstrations([trajectory(replace(task, seed=3, params={"turns": 1}), reward=1.0)], 8)
    for task in tasks:
        found = ledger.pool.usable_of_family(replace(task, seed=9), 8)
        assert {ledger.pool.load(one, RULES).trajectory.task.family for one in found} == {task.family}
        assert len(found) == 2


@on_sqlite
def test_neither_successes_nor_the_pool_of_a_family_read_groups_or_rollouts_as_a_whole(tmp_path, url):
    with recorded() as work, closing(Ledger.create(tmp_path / "run", url=url)) as ledger:
        ledger.policies.register_initial("policies/v000000")
        work.begin()
        ledger.pool.solved_elsewhere(plan().task, 1)
        ledger.pool.usable_of_family(plan().task, 1)
        scanned = {table for one in work.scans for table in one.scanned}
    assert len(work.statements) >= 2 and scanned <= {"pool"}
