"""The learning experiments: what they measure against closed forms, and that their tables say what was measured."""

import itertools
import math
import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks.learning_experiments import NAMES, find
from benchmarks.learning_experiments.base import Claim, Figure
from benchmarks.learning_experiments.chain import Chain
from benchmarks.learning_experiments.episode import Episode
from benchmarks.learning_experiments.report import Run, claims_table, figures_table, shown, verdict
from benchmarks.learning_experiments.rloo import CHANCE, PROMPT, RIGHT, WRONG, TwoArms, relative_gradient
from benchmarks.learning_experiments.table import TablePolicy, recipe_of
from benchmarks.raw_results import RawResults
from quartet.types import GroupMember, Trajectory
from recipes.digirl.doubly_robust import doubly_robust


def answered(policy: TablePolicy, right: bool) -> Trajectory:
    episode = Episode(policy, random.Random(0))
    episode.show(PROMPT)
    chance = CHANCE if right else 1 - CHANCE
    episode.say([RIGHT if right else WRONG], [math.log(chance)], 0)
    episode.reward(float(right))
    return episode.end(success=right)


@pytest.mark.parametrize(("credit", "ratio"), [("reinforce", 1.0), ("rloo", 1.0), ("dr_grpo", 0.75), ("grpo", 1.4156)])
def test_the_expected_gradient_over_all_groups_of_four(credit: str, ratio: float):
    """Exact for a leave-one-out baseline, 3/4 of it for the group's mean, and no such multiple for GRPO.

    GRPO: the sum over k of P(k of 4 right) * k (4 - k) / 4 / s(k) / (4 p (1 - p)), with s(k) the standard deviation.
    """
    policy = TablePolicy(TwoArms(), [f"credit.name={credit}", "train.max_grad_norm=1e9"], 0)
    expected = 0.0
    for outcomes in itertools.product([True, False], repeat=4):
        chance = math.prod(CHANCE if right else 1 - CHANCE for right in outcomes)
        members = [
            GroupMember(rollout_id=number, trajectory=answered(policy, right)) for number, right in enumerate(outcomes)
        ]
        expected += chance * relative_gradient(policy, [members])
    assert expected == pytest.approx(ratio, abs=1e-4)


def test_the_table_samples_with_the_probabilities_that_the_trainer_computes():
    policy = TablePolicy(Chain(pages=3, turns=4, words=2.0), ["train.learning_rate=0.3"], 3)
    for _ in range(3):
        policy.train(policy.roll_out([0, 0], 4))
        assert policy.metrics["gap_k3_nats"] < 1e-9
        assert policy.metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-5)


def test_batches_wait_as_many_train_steps_as_the_lag():
    policy = TablePolicy(TwoArms(), ["admission.max_lag=2"], 0)
    versions = []
    for _ in range(5):
        policy.train(policy.roll_out([0], 4))
        versions.append(policy.version)
    assert versions == [0, 0, 1, 2, 3]


@pytest.mark.parametrize(("dense", "rewards"), [(True, [0.5, 0.0, 0.5]), (False, [0.0, 0.0, 1.0])])
def test_a_chain_rewards_new_pages_or_the_end(dense: bool, rewards: list[float]):
    world = Chain(pages=2, turns=5, buttons=2, dense=dense)
    policy = TablePolicy(world, [], 0)
    chosen = iter([world.press(0, world.right(0)), world.press(1, 1 - world.right(1)), world.press(1, world.right(1))])
    policy.sample = lambda last, draw: (next(chosen), 0.0)  # type: ignore[method-assign]
    trajectory = world.play(Episode(policy, random.Random(0)), 0)
    assert [turn.reward for turn in trajectory.turns] == rewards
    assert trajectory.success


@pytest.mark.parametrize(
    ("trace", "advantages"),
    [(1.0, [1.0, 1.0, 1.0]), (0.0, [0.3, -0.1, 1.0]), (0.5, [0.25 + 0.75 * 0.3, 0.5 - 0.5 * 0.1, 1.0])],
)
def test_digirl_mixes_outcome_and_temporal_difference(trace: float, advantages: list[float]):
    """Values 0.2, 0.5, 0.4 and one reward at the end: the differences are 0.3, -0.1 and 0.6."""
    found = doubly_robust(np.array([0.0, 0.0, 1.0]), np.array([0.2, 0.5, 0.4]), trace)
    assert found == pytest.approx(advantages)


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_compares_recipes_and_claims_what_it_measures(name: str):
    experiment = find(name)
    assert len(experiment.arms) > 1
    for settings in experiment.arms.values():
        recipe_of([setting for setting in settings if "=" in setting])
    for claim in experiment.claims:
        assert {claim.arm, claim.against or claim.arm} <= set(experiment.arms)
        assert claim.figure in experiment.figures
        assert (claim.above is None) != (claim.below is None)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((0.2, 0.1, 0.3), "yes"),
        ((0.2, -0.1, 0.5), "not shown"),
        ((-0.2, -0.3, -0.1), "no"),
        ((0.0, 0.0, 0.0), "not shown"),
    ],
)
def test_a_claim_holds_if_the_whole_interval_is_on_its_side(found, expected):
    assert verdict(Claim(text="", arm="a", figure="f", above=0.0), found) == expected
    mirrored = tuple(-value for value in (found[0], found[2], found[1]))
    assert verdict(Claim(text="", arm="a", figure="f", below=0.0), mirrored) == expected


def test_a_figure_is_shown_with_its_factor_and_digits():
    assert shown(Figure("x", 1, 100), (0.1234, -0.01, 0.2)) == "12.3 (−1.0 to 20.0)"
    assert shown(Figure("x"), (3.0, 1.0, 5.0), signed=True) == "+3 (+1 to +5)"


def test_tables_pair_seeds(tmp_path: Path):
    """REINFORCE's deviation is 0.1 and 0.3, RLOO's 0.05 less in both: the difference has no spread."""
    raw = RawResults(tmp_path / "learning_rloo.jsonl", Run)
    for arm, change in (("grpo", 0.1), ("dr_grpo", 0.0), ("reinforce", 0.0), ("rloo", -0.05)):
        for seed, deviation in ((11, 0.3), (10, 0.1)):
            figures = {"ratio": 1.0, "deviation": deviation + change}
            raw.add({"arm": arm, "seed": seed}, Run(figures=figures, tokens=1000, cpu_seconds=1.0))
    assert "| RLOO: less variance than REINFORCE | −0.050 (−0.050 to −0.050) | yes |" in claims_table(raw.file)
    *_, rloo = figures_table(raw.file).splitlines()
    assert rloo.startswith("| `rloo` | 1.000 (1.000 to 1.000) | +0.000 (+0.000 to +0.000) |")
    assert rloo.endswith("| −0.150 (−0.150 to −0.150) | 1,000 |")
