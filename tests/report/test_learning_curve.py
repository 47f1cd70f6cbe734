"""Success of the evaluations against training rollouts, and the rollouts that a run needed for its target."""

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from quartet.ledger import Ledger
from quartet.report.comparison.groups import common_target
from quartet.report.comparison.results import RunResult
from quartet.report.learning_curve import Reached, first_at, held_out_by_step, learning_curve
from quartet.report.summary import build_summary
from quartet.types import Purpose, RolloutPlan, Task
from tests.ledger.samples import FakeClock, finish, recipe, trainable_group

SUCCESSES = {"before/greedy": 0.5, "before/sampled": 1.0, "during/1": 0.75, "during/2": 0.5, "after 2/greedy": 0.875}
NEEDED = {0.5: 0, 0.75: 4, 0.8: 12, 1.0: None, None: None}
"""Rollouts until the first greedy evaluation at a target."""


def plans(tag: str) -> list[RolloutPlan]:
    tasks = [Task(env="bandit", family="left", seed=seed) for seed in range(8)]
    return [RolloutPlan(task=task, num_rollouts=1, max_turns=1, purpose=Purpose.EVAL, tag=tag) for task in tasks]


def evaluate(ledger: Ledger, tag: str, success: float) -> None:
    ledger.evaluations.admit(tag, plans(tag))
    for number, lease in enumerate(ledger.rollouts.claim("w", 8, 60)):
        finish(ledger, lease, reward=float(number < 8 * success))


def test_the_first_evaluation_at_the_target_counts_the_rollouts_until_then(tmp_path: Path) -> None:
    clock = FakeClock()
    with closing(Ledger.create(tmp_path, clock=clock)) as ledger:
        ledger.policies.register_initial("policies/v000000")
        for tag, success in SUCCESSES.items():
            clock.now += 1
            evaluate(ledger, tag, success)
            clock.now += 1
            if tag != "before/greedy":
                trainable_group(ledger)
                trainable_group(ledger)
        ledger.evaluations.admit("during/3", plans("during/3"))
        finish(ledger, ledger.rollouts.claim("w", 1, 60)[0], reward=1.0)
        ledger.groups.cancel_unfinished()  # training has ended: one success of eight episodes is no result
        assert [(point.tag, point.success, point.rollouts) for point in learning_curve(ledger)] == [
            ("before/greedy", 0.5, 0),
            ("during/1", 0.75, 4),
            ("during/2", 0.5, 8),
            ("after 2/greedy", 0.875, 12),
        ]
        for target, rollouts in NEEDED.items():
            settings = recipe(train={"target_success": target}, evaluation={"train_steps_per_evaluation": 1})
            summary = build_summary(settings, ledger, wall_seconds=1.0, control=None)
            assert summary["rollouts_to_target"] == rollouts
        assert [point["rollouts"] for point in summary["learning_curve"]] == [0, 4, 8, 12]


def test_an_evaluation_of_a_policy_that_was_rolled_back_is_not_one_of_the_initial_policy(tmp_path: Path) -> None:
    with closing(Ledger.create(tmp_path)) as ledger:
        ledger.policies.register_initial("policies/v000000")
        evaluate(ledger, "before/greedy", 0.25)
        trainable_group(ledger)
        batch = ledger.batches.claim("t", 1, 1, "mask", 60)
        assert batch is not None
        ledger.batches.commit(batch, "policies/v1", {})
        evaluate(ledger, "during/1", 0.75)
        assert held_out_by_step(ledger) == [(0, 0.25), (1, 0.75)]
        ledger.batches.roll_back(0)
        assert held_out_by_step(ledger) == [(0, 0.25)]
        assert [point.tag for point in learning_curve(ledger)] == ["before/greedy"]


@pytest.mark.parametrize("solved", range(21))
def test_every_run_reaches_the_target_that_all_runs_have_reached(solved: int) -> None:
    """Of 20 episodes; 3, 6, 7, 12, 14, 17 and 19 twentieths are smaller than these multiples of 0.05."""
    point = Reached(tag="t", success=solved / 20, train_step=1, seconds=1.0, rollouts=1, generated_tokens=1)
    target = common_target([cast(RunResult, SimpleNamespace(curve=[point]))])
    assert first_at([point], target) is point and target == pytest.approx(solved / 20)
