"""The audit finds what it is there to find: trainers with a mistake that die at the worst moment, altered receipts."""

from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.observe.audit import audit
from tests.faults.fed_run import TRAINER, FedRun

pytestmark = pytest.mark.slow
STEPS = 3


@pytest.fixture
def fed(tmp_path: Path, bandit_policy: Path) -> FedRun:
    train = {"groups_per_batch": 1, "max_train_steps": STEPS}
    run = FedRun(tmp_path / "run", bandit_recipe(bandit_policy, train=train, runtime={"receipts": True}))
    run.feed(STEPS)
    return run


@pytest.mark.parametrize("point", ["commit_batch.before", "commit_batch.after"])
def test_a_trainer_without_a_mistake_may_die_anywhere(fed: FedRun, point: str) -> None:
    assert fed.train(killed_at=point) == -9
    assert fed.train() == 0
    report = audit(fed.run_dir)
    assert not report.findings
    assert (report.train_steps, report.trained, report.replay_identical) == (STEPS, 2 * STEPS, True)
    assert report.abandoned_steps == (point == "commit_batch.before")


@pytest.mark.parametrize("point", ["policy.before", "checkpoint.before"])
def test_a_commit_before_the_files_is_found(fed: FedRun, point: str) -> None:
    assert fed.train("tests.faults.commits_first", killed_at=point) == -9
    assert fed.train(TRAINER) == 1  # there is nothing to go on from
    report = audit(fed.run_dir)
    assert report.findings
    assert report.replay_identical == (point == "checkpoint.before")


def test_forgotten_moments_are_found(fed: FedRun) -> None:
    assert fed.train(killed_at="commit_batch.after") == -9
    assert fed.train("tests.faults.forgets_moments") == 0
    report = audit(fed.run_dir)
    assert not report.replay_identical
    assert (report.lost, report.trained_twice) == (0, 0)
