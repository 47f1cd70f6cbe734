"""What happened lately and what it cost, on both databases; and lately does not read the whole run."""

from quartet.ledger import Ledger
from quartet.report.costs import cost_until, evaluation_times, training_began
from quartet.report.recent import evaluation_counts, newest_train_metrics, recent_statuses, recent_verdicts
from quartet.types import GroupState, Purpose, Status
from tests.ledger.samples import finish, on_sqlite, plan, statements, trainable_group


def claim(ledger: Ledger):
    return ledger.batches.claim("t", 1, 2, "mask", 60)


def test_statuses_of_the_newest_attempts_include_those_that_are_tried_again(ledger):
    ledger.groups.admit(plan())
    for status in (Status.ERROR_ENV, Status.COMPLETED):
        (lease,) = ledger.rollouts.claim("w", 1, 60)
        finish(ledger, lease, status=status)
    assert recent_statuses(ledger, 1) == {"completed": 1}
    assert recent_statuses(ledger, 10) == {"completed": 1, "error_env": 1}


def test_verdicts_leave_out_what_is_not_judged_and_what_is_evaluated(ledger):
    assert recent_verdicts(ledger, 10) == {}
    trainable_group(ledger)
    dropped = ledger.groups.admit(plan())
    for lease in ledger.rollouts.claim("w", 2, 60):
        finish(ledger, lease)
    ledger.groups.close(dropped)
    ledger.groups.drop(dropped, "equal_rewards")
    ledger.groups.admit(plan())
    ledger.evaluations.admit("before/greedy", [plan(rollouts=1, purpose=Purpose.EVAL, tag="before/greedy")])
    assert recent_verdicts(ledger, 10) == {"": 1, "equal_rewards": 1}
    assert recent_verdicts(ledger, 2) == {"equal_rewards": 1}, "the newest two are one that is open, and this"
    assert GroupState.TRAINABLE in ledger.statistics.queue_sizes().groups
    assert ledger.groups.cancel_unfinished() == 2, "the end of training is no verdict"
    assert recent_verdicts(ledger, 10) == {"": 1, "equal_rewards": 1}


def test_the_newest_train_metrics_are_of_what_is_committed(ledger):
    assert newest_train_metrics(ledger, 1) == []
    for number in (1, 2):
        trainable_group(ledger)
        batch = claim(ledger)
        assert batch is not None
        ledger.batches.commit(batch, f"policies/{number}", {"entropy_nats": number / 10})
    assert newest_train_metrics(ledger, 1) == [{"entropy_nats": 0.2}]
    trainable_group(ledger)
    assert claim(ledger) is not None
    assert newest_train_metrics(ledger, 1) == [{"entropy_nats": 0.2}]


def test_cost_counts_training_rollouts_until_a_moment(ledger, clock):
    assert training_began(ledger) is None
    assert cost_until(ledger, float("inf")).rollouts == 0
    ledger.evaluations.admit("before/greedy", [plan(rollouts=1, purpose=Purpose.EVAL, tag="before/greedy")])
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    finish(ledger, lease)
    assert evaluation_counts(ledger, ["before/greedy", "before/sampled"]) == (1, 1)
    clock.now += 5
    began = clock.now
    trainable_group(ledger)
    clock.now += 10
    trainable_group(ledger)
    assert training_began(ledger) == began
    early, late = cost_until(ledger, began + 1), cost_until(ledger, float("inf"))
    assert (early.rollouts, late.rollouts) == (2, 4)
    assert 0 < early.response_tokens == late.response_tokens / 2
    assert 0 < early.prompt_tokens == late.prompt_tokens / 2
    (evaluation,) = evaluation_times(ledger)
    assert (evaluation.tag, evaluation.version, evaluation.created_at) == ("before/greedy", 0, began - 5)


@on_sqlite
def test_lately_reads_no_more_of_a_longer_run(ledger):
    """By SQLite's plans of the very statements: by key or index, newest first, and nothing is sorted."""
    with statements() as asked:
        recent_statuses(ledger, 9)
        recent_verdicts(ledger, 9)
        newest_train_metrics(ledger, 20)
        training_began(ledger)
    assert len(asked) == 4
    for statement, parameters in asked:
        with ledger.read() as connection:
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
        steps = " | ".join(row[3] for row in rows)
        assert "TEMP B-TREE" not in steps, steps
        assert "USING INDEX" in steps or "SCAN trajectories" in steps or "SCAN groups" in steps, steps
