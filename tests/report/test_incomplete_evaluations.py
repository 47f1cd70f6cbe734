"""Incomplete evaluations have no success: their finished episodes are a biased sample."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from quartet.ledger import Ledger
from quartet.report.held_out import held_out_results
from quartet.report.learning_curve import learning_curve
from quartet.report.summary import build_summary
from quartet.report.summary_table import summary_table
from quartet.types import Purpose, Status
from quartet.web.queries.tasks import shown_evaluations
from tests.ledger.samples import finish, manager_of, plan, recipe, trainable_group

TAG = "after 0/greedy"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger.create(tmp_path)) as made:
        made.policies.register_initial("policies/v000000")
        yield made


def evaluate(ledger: Ledger, *, finished: int, asked: int, tag: str = TAG) -> None:
    """All finished episodes succeed."""
    ledger.evaluations.admit(tag, [plan(rollouts=1, purpose=Purpose.EVAL, tag=tag)] * asked)
    for lease in ledger.rollouts.claim("w", finished, 60):
        finish(ledger, lease, reward=1.0)


def shown(ledger: Ledger) -> list[object]:
    """Return how many results the learning curve, `quartet status` and the dashboard have."""
    with ledger.read() as connection:
        return [
            len(found) for found in (learning_curve(ledger), held_out_results(ledger), shown_evaluations(connection))
        ]


@pytest.mark.parametrize("cut_off", [True, False])
def test_an_incomplete_evaluation_is_left_out_with_its_counts(ledger: Ledger, cut_off: bool) -> None:
    evaluate(ledger, finished=3, asked=8)
    if cut_off:
        ledger.groups.cancel_unfinished()
    assert shown(ledger) == [0, 0, 0]
    summary = build_summary(recipe(), ledger, wall_seconds=1.0, control=None)
    assert summary["success_after"] is None
    if not cut_off:  # otherwise another evaluation of this train step will be reported
        assert summary["evaluations"] == {"after": {"asked": 8, "episodes": 3, "uncounted": {"left": 5}}}
        assert "after: 3 of 8 episodes have a result" in str(summary_table(summary).caption)


def test_a_whole_evaluation_is_shown_also_if_workers_were_lost(ledger: Ledger, tmp_path: Path) -> None:
    evaluate(ledger, finished=7, asked=8)
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    finish(ledger, lease, max_attempts=1, status=Status.ERROR_ENGINE)
    with manager_of(recipe(), ledger) as manager:
        manager.tick()
    assert shown(ledger) == [1, 1, 1]
    assert build_summary(recipe(), ledger, wall_seconds=1.0, control=None)["success_after"] == 1.0


def test_an_evaluation_during_training_that_was_cut_off_marks_no_best_policy(ledger: Ledger) -> None:
    """The run was resumed before its result was recorded, so it has no stop reason."""
    evaluate(ledger, finished=3, asked=8, tag="during/1")
    ledger.groups.cancel_unfinished()
    with manager_of(recipe(), ledger) as manager:
        manager.tick()
    assert ledger.policies.best() is None and not ledger.evaluations.running()
    assert not [event for event in ledger.events() if event.kind == "evaluation_uncounted"]


def test_evaluations_of_policies_that_were_rolled_back_are_left_out(ledger: Ledger) -> None:
    trainable_group(ledger)
    batch = ledger.batches.claim("t", 1, 1, "mask", 60)
    assert batch is not None
    ledger.batches.commit(batch, "policies/v1", {})
    evaluate(ledger, finished=8, asked=8, tag="after 1/greedy")
    assert shown(ledger)[:2] == [1, 1]
    ledger.batches.roll_back(0)
    assert shown(ledger)[:2] == [0, 0]
