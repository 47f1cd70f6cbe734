"""Does lag harm learning? The report against numbers worked out by hand, the loss, and how old a run's batches are."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from benchmarks.lag.arms import SYNCHRONOUS, Arm, arms
from benchmarks.lag.naive_ppo import NaivePpo
from benchmarks.lag.report import LAST_TRAIN_STEPS, Line, make_report, mean_lag, success, table, within_margin
from benchmarks.lag.run import Learned, learn
from quartet.policy.make import make_policy
from quartet.report.comparison.intervals import interval
from quartet.train.loss.base import LossInput

pytestmark = pytest.mark.slow

LAGGING = "decoupled, max_lag 4"


def learned(end: float, lags: dict[int, int]) -> Learned:
    """Ten train steps at 0.2, then those that count."""
    return Learned(curve=[0.2] * 10 + [end] * LAST_TRAIN_STEPS, lag_histogram=lags, cpu_seconds=1.0)


def test_success_is_the_mean_over_the_last_policies_and_lag_that_over_trajectories():
    run = learned(0.8, {0: 10, 4: 30})
    assert success(run) == pytest.approx(0.8)
    assert mean_lag([run, learned(0.8, {2: 40})]) == pytest.approx((120 + 80) / 80)


@pytest.mark.parametrize(
    ("differences", "within"),
    [([0.01, 0.02], False), ([0.01, 0.012], True), ([0.028] * 5, True), ([-0.031] * 5, False), ([0.0], False)],
)
def test_the_whole_interval_must_lie_within_the_margin(differences: Sequence[float], within: bool):
    """t(1) = 12.706: two values 0.01 apart have an interval of +- 0.064, two 0.002 apart one of +- 0.013."""
    assert within_margin(interval(differences)) is within


def report_of(lags: dict[int, int], ends: Sequence[float]) -> dict[str, Line]:
    runs = {
        SYNCHRONOUS: [learned(0.7, {0: 40}), learned(0.72, {0: 40})],
        LAGGING: [learned(end, lags) for end in ends],
    }
    return make_report(runs, arms([4]))


def test_a_report_pairs_seeds():
    report = report_of({4: 30, 0: 10}, [0.71, 0.73])
    line = report[LAGGING]
    assert line.difference is not None and line.whole_difference is not None
    assert line.difference.mean == pytest.approx(line.difference.low) == pytest.approx(0.01)
    assert line.whole_difference.mean == pytest.approx(0.005)
    assert (line.mean_lag, line.unharmed) == (3.0, True)
    assert report[SYNCHRONOUS].difference is None and report[SYNCHRONOUS].unharmed is None
    assert "| 4 | decoupled | 3.00 | 72.0 % | +1.0 (+1.0 to +1.0) | +0.5 (+0.5 to +0.5) | yes |" in table(report)


def test_with_too_little_lag_nothing_is_shown():
    assert report_of({4: 27, 0: 13}, [0.71, 0.73])[LAGGING].unharmed is None
    assert report_of({4: 30, 0: 10}, [0.61, 0.63])[LAGGING].unharmed is False


def test_arms_differ_in_lag_and_objective_only():
    made = {name: arm.recipe("policy", 3) for name, arm in arms([1, 4]).items()}
    assert [recipe.admission.max_lag for recipe in made.values()] == [0, 1, 1, 4, 4]
    plain = made[SYNCHRONOUS]
    same = {"admission": plain.admission, "loss": plain.loss}
    assert all(recipe.model_copy(update=same) == plain for recipe in made.values())


def test_naive_ppo_clips_around_the_policy_that_sampled():
    """Two tokens, advantage 1: pi / pi_rollout is 2, clipped to 1.28, and 0.5; pi_old has no say."""
    tokens = LossInput(
        logprobs_T=torch.log(torch.tensor([0.4, 0.2])),
        old_logprobs_T=torch.log(torch.tensor([0.4, 0.9])),
        rollout_logprobs_T=torch.log(torch.tensor([0.2, 0.4])),
        advantages_T=torch.ones(2),
        weights_T=torch.full((2,), 0.5),
        branches_T=torch.tensor([0, 0]),
    )
    loss, metrics = NaivePpo(NaivePpo.Settings()).loss(tokens)
    assert loss.item() == pytest.approx(-(1.28 + 0.5) / 2)
    assert metrics["importance_mean"] == pytest.approx(1.0)


@pytest.mark.parametrize("max_lag", [0, 2])
def test_all_but_the_first_batches_are_as_old_as_the_bound(tmp_path: Path, max_lag: int):
    """Batch n starts from version n - 1, and began when the batch `max_lag` places before it was to be trained."""
    policy = tmp_path / "policy"
    make_policy(["Open hall.\nheading jammed", "click [1]"], policy, vocab_size=600, hidden_size=16, num_layers=1)
    arm = Arm(objective="naive PPO", max_lag=max_lag)
    run = learn(arm.recipe(str(policy), 0, ["train.max_train_steps=4", "train.groups_per_batch=1"]), tmp_path / "run")
    assert len(run.curve) == 5
    assert run.lag_histogram == ({0: 32} if max_lag == 0 else {0: 8, 1: 8, 2: 16})
