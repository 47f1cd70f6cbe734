"""What counts in an evaluation: a time-out is a failure, an infrastructure failure is uncounted and told."""

import pytest

from quartet.errors import ConfigError
from quartet.ledger import Ledger
from quartet.ledger.results import FamilyResult, described, success_rate, too_many_uncounted, total, uncounted_warning
from quartet.manager.evaluation import admit_evaluation
from quartet.report.held_out import held_out_results
from quartet.types import RolloutLease, Status
from tests.ledger.samples import finish, manager_of, recipe


def evaluate(ledger: Ledger, statuses: list[Status], *, seeds: range, tag: str = "after 1/greedy") -> None:
    """One family, one episode per status in the order of the seeds; those that complete succeed."""
    admit_evaluation(ledger, recipe(), ["fixed"], seeds=seeds, temperature=0.0, tag=tag)
    for lease, status in zip(ledger.rollouts.claim("w", 100, 60), statuses, strict=False):
        end(ledger, lease, status)


def end(ledger: Ledger, lease: RolloutLease, status: Status) -> None:
    finish(ledger, lease, max_attempts=1, status=status, reward=float(status is Status.COMPLETED))


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (Status.COMPLETED, FamilyResult(1, 1, 0)),
        (Status.TRUNCATED_TURNS, FamilyResult(0, 1, 0)),
        (Status.TRUNCATED_TOKENS, FamilyResult(0, 1, 0)),
        (Status.TRUNCATED_TIME, FamilyResult(0, 1, 0)),
        (Status.ERROR_ENV, FamilyResult(0, 0, 1)),
        (Status.ERROR_ENGINE, FamilyResult(0, 0, 1)),
        (Status.ERROR_REWARD, FamilyResult(0, 0, 1)),
        (Status.ERROR_AGENT, FamilyResult(0, 0, 1)),
    ],
)
def test_every_status_is_counted_or_reported(ledger, status, result):
    evaluate(ledger, [status], seeds=range(7, 8))
    assert ledger.evaluations.results("after 1/greedy") == {"fixed": result}


def test_a_time_out_that_had_reached_its_goal_is_a_failure_all_the_same(ledger):
    admit_evaluation(ledger, recipe(), ["fixed"], seeds=range(1), temperature=0.0, tag="after 1/greedy")
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    finish(ledger, lease, status=Status.TRUNCATED_TIME, reward=1.0)
    assert ledger.evaluations.results("after 1/greedy") == {"fixed": (0, 1, 0)}


def test_the_denominator_that_was_asked_for_is_told(ledger):
    """The case of the report: 80 episodes, of which 3 succeed, 37 run out of time and 40 fail."""
    ended = [Status.COMPLETED] * 3 + [Status.TRUNCATED_TIME] * 37 + [Status.ERROR_ENV] * 40
    evaluate(ledger, ended, seeds=range(80))
    results = ledger.evaluations.results("after 1/greedy")
    assert described(results) == "7.5 % of 40 of 80 episodes, 40 uncounted"
    warning = uncounted_warning(results)
    assert warning is not None and "50 %" in warning and "fixed 40 of 80" in warning
    (shown,) = held_out_results(ledger)
    assert (shown.success, shown.together) == (0.075, FamilyResult(3, 40, 40))


def test_running_rollouts_are_neither_counted_nor_uncounted(ledger):
    evaluate(ledger, [Status.COMPLETED], seeds=range(3))
    assert ledger.evaluations.results("after 1/greedy") == {"fixed": (1, 1, 0)}
    ledger.groups.cancel_unfinished()
    assert ledger.evaluations.results("after 1/greedy") == {"fixed": (1, 1, 2)}


def test_a_family_without_any_result_is_told_and_leaves_the_mean_to_the_others():
    results = {"works": FamilyResult(3, 4, 0), "broken": FamilyResult(0, 0, 4)}
    assert success_rate(results) == 0.75
    assert described(results) == "75.0 % of 4 of 8 episodes, 4 uncounted"
    assert described({"broken": FamilyResult(0, 0, 4)}) == "no result of 0 of 4 episodes, 4 uncounted"
    assert described({"works": FamilyResult(3, 4)}) == "75.0 % of 4 episodes"
    assert (total({}), success_rate({})) == (FamilyResult(0, 0), None)


@pytest.mark.parametrize(("uncounted", "warned"), [(0, False), (1, False), (2, True)])
def test_more_than_one_percent_is_warned_of(uncounted, warned):
    assert too_many_uncounted({"fixed": FamilyResult(50, 100 - uncounted, uncounted)}) is warned


@pytest.mark.parametrize(("broken", "best"), [(Status.COMPLETED, 0), (Status.ERROR_ENV, None)])
def test_an_evaluation_that_lost_episodes_chooses_no_best_policy(ledger, broken, best):
    with manager_of(recipe(evaluation={"train_steps_per_evaluation": 1}), ledger) as manager:
        evaluate(ledger, [Status.COMPLETED, broken], seeds=range(2), tag="during/1")
        manager.tick()
    chosen = ledger.policies.best()
    assert (chosen.version if chosen else None) == best
    assert [event.kind for event in ledger.events() if event.kind == "evaluation_uncounted"] == (
        ["evaluation_uncounted"] if best is None else []
    )


def test_reported_selection_and_training_seeds_are_disjoint():
    """At the largest numbers that the settings allow."""
    settings = {"first_seed": 200, "episodes_per_family": 500_000, "episodes_per_family_during": 500_000}
    allowed = recipe(evaluation=settings, control={"train_seeds_per_family": 200})
    training = range(allowed.control.train_seeds_per_family)
    splits = (training, allowed.evaluation.reported_seeds, allowed.evaluation.selection_seeds)
    assert [(split[0], split[-1]) for split in splits] == [(0, 199), (200, 500_199), (500_200, 1_000_199)]
    for section in (
        {"evaluation": settings | {"episodes_per_family": 500_001}},
        {"evaluation": settings, "control": {"train_seeds_per_family": 201}},
    ):
        with pytest.raises(ConfigError):
            recipe(**section)
