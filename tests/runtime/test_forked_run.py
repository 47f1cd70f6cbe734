"""Whole runs with forks, on the locks: children are sampled, trained and audited."""

import pytest
import sqlalchemy as sa

from benchmarks.bandit import bandit_recipe
from quartet.ledger import Ledger
from quartet.ledger.schema import groups, rollouts, trajectories
from quartet.report.audit import audit
from quartet.report.check import check_ledger
from quartet.runtime.run import run_recipe
from quartet.types import GroupState

pytestmark = pytest.mark.slow


def forked_recipe(policy, **runtime):
    return bandit_recipe(
        policy,
        env={"name": "locks", "families": ["latch", "hook"]},
        rollout={
            "loop": "append",
            "max_turns": 3,
            "brancher": {"name": "entropy", "min_entropy_nats": 0.3, "max_forks_per_group": 3},
        },
        control={"rollouts_per_group": 4},
        admission={"max_lag": 0},
        train={"max_train_steps": 2, "max_seconds": 600.0},
        evaluation={"before_and_after": False},
        runtime={"receipts": True} | runtime,
    )


def test_a_run_trains_on_children_and_every_bit_is_explained(tmp_path, bandit_policy):
    """One after the other, so one seed gives one run; training it again from its records gives the same weights."""
    recipe = forked_recipe(bandit_policy, kind="synchronous")
    summary = run_recipe(recipe, tmp_path / "run", resume=False, fresh=False, quiet=True)
    assert (summary["train_steps"], summary["lost"], summary["trained_twice"]) == (2, 0, 0)
    ledger = Ledger.open(tmp_path / "run")
    trained = (
        sa.select(rollouts.c.id)
        .join(groups, rollouts.c.group_id == groups.c.id)
        .join(trajectories, trajectories.c.rollout_id == rollouts.c.id)
        .where(rollouts.c.parent_id.is_not(None), groups.c.state == GroupState.TRAINED, trajectories.c.counted)
    )
    with ledger.read() as connection:
        children = list(connection.execute(trained).scalars())
    assert children
    for rollout_id in children:
        child = ledger.trajectories.load_final(rollout_id)
        assert child is not None and child.parent is not None and child.calls[0].borrowed
        parent = ledger.trajectories.load_final(child.parent.rollout_id)
        assert parent is not None
        shared = child.parent.call_index + 1
        assert [call.response_ids for call in child.calls[:shared]] == [
            call.response_ids for call in parent.calls[:shared]
        ]
        assert child.calls[shared].prompt_ids == parent.calls[shared].prompt_ids
    ledger.close()
    report = audit(tmp_path / "run")
    assert not report.findings and report.replay_identical and report.trained > 2 * 2 * 4 / 2


def test_modules_that_work_at_the_same_time_train_on_children_too(tmp_path, bandit_policy):
    summary = run_recipe(forked_recipe(bandit_policy), tmp_path / "run", resume=False, fresh=False, quiet=True)
    assert (summary["train_steps"], summary["lost"], summary["trained_twice"]) == (2, 0, 0)
    ledger = Ledger.open(tmp_path / "run")
    with ledger.read() as connection:
        forks = sa.select(sa.func.count()).where(
            rollouts.c.parent_id.is_not(None), rollouts.c.status.in_(("completed", "truncated_turns"))
        )
        assert connection.execute(forks).scalar_one() > 0
    assert check_ledger(ledger).findings == []
    ledger.close()
