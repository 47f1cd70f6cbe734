"""The learning experiments: what they measure against closed forms, and that their tables say what was measured."""

import itertools
import math
import random
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import learning
from benchmarks.learning_experiments import NAMES, find
from benchmarks.learning_experiments.base import Claim, Figure
from benchmarks.learning_experiments.chain import Chain
from benchmarks.learning_experiments.episode import Episode
from benchmarks.learning_experiments.report import Run, claims_table, figures_table, shown
from benchmarks.learning_experiments.rloo import CHANCE, relative_gradient
from benchmarks.learning_experiments.table import TablePolicy, recipe_of
from benchmarks.learning_experiments.two_answers import PROMPT, RIGHT, WRONG, TwoAnswers
from benchmarks.learning_experiments.verdicts import holm, p_value, two_sided, verdicts
from benchmarks.learning_experiments.world import WorldPolicy
from benchmarks.raw_results import FOLDER, RawResults
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
    policy = TablePolicy(TwoAnswers(CHANCE), [f"credit.name={credit}", "train.max_grad_norm=1e9"], 0)
    expected = 0.0
    for outcomes in itertools.product([True, False], repeat=4):
        chance = math.prod(CHANCE if right else 1 - CHANCE for right in outcomes)
        members = [
            GroupMember(rollout_id=number, trajectory=answered(policy, right)) for number, right in enumerate(outcomes)
        ]
        expected += chance * relative_gradient(policy, [members])
    assert expected == pytest.approx(ratio, abs=1e-4)


def test_the_table_samples_with_the_probabilities_that_the_trainer_computes():
    policy = WorldPolicy(Chain(pages=3, turns=4, words=2.0), ["train.learning_rate=0.3"], 3)
    for _ in range(3):
        policy.train(policy.roll_out([0, 0], 4))
        assert policy.metrics["gap_k3_nats"] < 1e-9
        assert policy.metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-5)


def test_batches_wait_as_many_train_steps_as_the_lag():
    policy = WorldPolicy(TwoAnswers(CHANCE), ["admission.max_lag=2"], 0)
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


def test_digirl_leaves_earlier_rewards_out_of_a_step():
    """Without values and with a reward of the first step alone, only the first step has an advantage."""
    found = doubly_robust(np.array([1.0, 0.0, 0.0]), np.zeros(3), 0.5)
    assert found == pytest.approx([1.0, 0.0, 0.0])


@pytest.mark.parametrize("name", NAMES)
def test_an_experiment_compares_recipes_and_claims_what_it_measures(name: str):
    experiment = find(name)
    assert len(experiment.arms) > 1
    for arm in experiment.arms:
        recipe_of([setting for setting in experiment.settings(arm) if "=" in setting])
    for claim in experiment.claims:
        assert {claim.arm, claim.against or claim.arm} <= set(experiment.arms)
        assert claim.figure in experiment.figures
        assert (claim.above is None) != (claim.below is None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.campaign] * (name == "history")) for name in NAMES]
)
def test_a_run_with_a_tiny_budget_measures_every_figure(name: str):
    experiment = find(name)()
    experiment.budget_tokens = 400
    *_, arm = experiment.arms
    measured = experiment.run(experiment.settings(arm), 0)
    assert set(measured.figures) == set(experiment.figures)
    assert all(map(math.isfinite, measured.figures.values()))
    assert measured.tokens >= 400


def test_evaluations_of_different_seeds_differ_and_repeat_with_the_seed():
    world = Chain(pages=2, turns=3)
    found = [WorldPolicy(world, [], seed).success([0], 64) for seed in (10, 11, 12, 10)]
    assert found[0] == found[3]
    assert len(set(found)) > 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.15, 0.2, 0.25], "yes"),
        ([-0.1, 0.2, 0.3], "not shown"),
        ([-0.15, -0.2, -0.25], "no"),
        ([0.0, 0.0], "not shown"),
    ],
)
def test_a_claim_holds_if_the_values_are_on_its_side(values: list[float], expected: str):
    above = Claim(text="", arm="a", figure="f", above=0.0)
    below = Claim(text="", arm="a", figure="f", below=0.0)
    assert [found.holds for found in verdicts([(above, values)])] == [expected]
    assert [found.holds for found in verdicts([(below, [-value for value in values])])] == [expected]


def test_a_claim_among_many_needs_a_smaller_p():
    """Three values with p 0.038 alone show nothing beside a second claim that holds by chance as often."""
    claim, values = Claim(text="", arm="a", figure="f", above=0.0), [0.1, 0.14, 0.2]
    assert [found.holds for found in verdicts([(claim, values)])] == ["yes"]
    assert [found.holds for found in verdicts([(claim, values)] * 2)] == ["not shown"] * 2


@pytest.mark.parametrize(("t", "degrees"), [(12.706, 1), (4.303, 2), (3.182, 3), (2.776, 4), (2.262, 9), (2.228, 10)])
def test_p_values_are_those_of_tables_of_students_t(t: float, degrees: int):
    assert two_sided(t, degrees) == pytest.approx(0.05, abs=5e-5)
    assert two_sided(0.0, degrees) == 1.0


def test_values_without_spread_have_the_p_value_of_the_sign_test():
    assert [p_value([0.5, 0.5], bound) for bound in (0.5, 0.4)] == [1.0, 0.5]


def test_holm_multiplies_the_smallest_p_by_the_number_and_keeps_the_order():
    assert holm([0.04, 0.01, 0.03, 0.5]) == pytest.approx([0.09, 0.04, 0.09, 0.5])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_a_figure_is_shown_with_its_factor_and_digits():
    assert shown(Figure("x", 1, 100), (0.1234, -0.01, 0.2)) == "12.3 (−1.0 to 20.0)"
    assert shown(Figure("x"), (3.0, 1.0, 5.0), signed=True) == "+3 (+1 to +5)"


def stored(file: Path, seeds: dict[str, list[int]], **settings: list[str]) -> RawResults[Run]:
    """Store runs of `rloo`: REINFORCE's deviation is 0.1 and 0.3, RLOO's 0.05 less in both."""
    raw = RawResults(file, Run)
    for arm, change in (("grpo", 0.1), ("dr_grpo", 0.0), ("reinforce", 0.0), ("rloo", -0.05)):
        for seed in seeds.get(arm, [11, 10]):
            figures = {"ratio": 1.0, "deviation": {10: 0.1, 11: 0.3, 12: 0.5}[seed] + change}
            key = {"arm": arm, "seed": seed, "settings": settings.get(arm, find("rloo").settings(arm))}
            raw.add(key, Run(figures=figures, tokens=1000, cpu_seconds=1.0))
    return raw


def test_tables_pair_seeds(tmp_path: Path):
    raw = stored(tmp_path / "learning_rloo.jsonl", {"reinforce": [10, 11]})
    assert "| RLOO: less variance than REINFORCE | −0.050 (−0.050 to −0.050) | < 0.001 | yes |" in claims_table(
        raw.file
    )
    *_, rloo = figures_table(raw.file).splitlines()
    assert rloo.startswith("| `rloo` | 1.000 (1.000 to 1.000) | +0.000 (+0.000 to +0.000) |")
    assert rloo.endswith("| −0.150 (−0.150 to −0.150) | 1,000 |")


def test_tables_of_arms_with_different_seeds_are_refused(tmp_path: Path):
    raw = stored(tmp_path / "learning_rloo.jsonl", {"rloo": [10, 12]})
    with pytest.raises(click.ClickException, match="differ in their seeds"):
        claims_table(raw.file)


def test_tables_of_arms_that_changed_after_the_measurement_are_refused(tmp_path: Path):
    raw = stored(tmp_path / "learning_rloo.jsonl", {}, rloo=["credit.name=rloo"])
    with pytest.raises(click.ClickException, match="'rloo' was measured with"):
        figures_table(raw.file)


def test_an_arm_without_runs_is_shown_as_not_measured(tmp_path: Path):
    raw = stored(tmp_path / "learning_rloo.jsonl", {"reinforce": []})
    assert "| RLOO: less variance than REINFORCE | not measured | – | – |" in claims_table(raw.file)
    assert "| `reinforce` | not measured | not measured |" in figures_table(raw.file)


def test_a_figure_at_its_limit_in_every_run_has_no_interval(tmp_path: Path):
    raw = RawResults(tmp_path / "learning_dapo.jsonl", Run)
    for arm in find("dapo").arms:
        for seed in (10, 11):
            tokens = 10_240 if "epochs" in arm else 1000 + seed
            figures = {"grown": tokens, "common": tokens}
            key = {"arm": arm, "seed": seed, "settings": find("dapo").settings(arm)}
            raw.add(key, Run(figures=figures, tokens=tokens, cpu_seconds=1))
    *_, last = figures_table(raw.file).splitlines()
    assert "| ≥ 10240 | not known | ≥ 10240 | not known |" in last


@pytest.mark.parametrize(
    ("commit", "seeds", "message"),
    [("abc-dirty", "10-11", "commit first"), ("unknown", "10", "commit first"), ("abc", "4-10", "for tuning")],
)
def test_results_of_uncommitted_code_or_of_tuning_seeds_are_not_published(monkeypatch, commit, seeds, message):
    monkeypatch.setattr("benchmarks.raw_results.current_commit", lambda: commit)
    before = (FOLDER / "learning_rloo.jsonl").read_bytes()
    done = CliRunner().invoke(learning.main, ["rloo", "--seeds", seeds])
    assert done.exit_code == 1
    assert message in done.output
    assert (FOLDER / "learning_rloo.jsonl").read_bytes() == before
