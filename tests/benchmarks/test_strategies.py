"""Experiments on strategies: valid arms, a summary that says what was measured, figures of a real run."""

import math
import random
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.learning_experiments import find
from benchmarks.learning_experiments.report import Run
from benchmarks.learning_experiments.table import TablePolicy
from benchmarks.learning_experiments.two_answers import TwoAnswers
from benchmarks.learning_experiments.world import WorldPolicy
from benchmarks.locks import run as locks_run
from benchmarks.locks.run import run
from benchmarks.locks.start import chats_of
from benchmarks.locks.variants import grpo_with
from benchmarks.raw_results import RawResults
from benchmarks.strategies import NAMES, TUNING
from benchmarks.strategies.base import Strategy
from benchmarks.strategies.best_locks import LOWEST_SUCCESS
from benchmarks.strategies.best_miniwob import Main as InTheBrowser
from benchmarks.strategies.best_miniwob import mean_success
from benchmarks.strategies.contrast import Course, train_on_contrast
from benchmarks.strategies.ettrl import label_is_right
from benchmarks.strategies.ro_recomp_length import Lengths
from benchmarks.strategies.table import Manager
from benchmarks.strategies.views import result, summary
from benchmarks.worlds import copying as worlds_copying
from benchmarks.worlds import start as worlds_start
from quartet.env.environment.worlds import FAMILIES, make_world
from quartet.env.worlds.session import observe, written
from quartet.ledger import Ledger
from quartet.policy.make import make_policy
from quartet.policy.prompt import turn_text
from quartet.recipe.file import load_recipe
from quartet.report.learning_curve import Reached
from quartet.runtime.check.recipe import check_recipe


@pytest.fixture(scope="module")
def untrained(tmp_path_factory) -> str:
    """Return the setting of a policy that presses nothing."""
    folder = tmp_path_factory.mktemp("locks") / "policy"
    make_policy(["Open hall.\nheading jammed", "click [1]"], folder, vocab_size=600, hidden_size=16, num_layers=1)
    return f"model.path={folder}"


def stored(folder: Path, gains: list[float]) -> Path:
    """Store runs of `vade`, whose area is above that of `uniform` by these gains."""
    raw = RawResults(folder / "strategies_vade.jsonl", Run)
    experiment = find("vade", "strategies")
    for arm in experiment.arms:
        for seed, gain in enumerate(gains, 10):
            figures = dict.fromkeys(experiment.figures, 0.2) | {"area": 0.2 + gain * (arm == "vade")}
            key = {"arm": arm, "seed": seed, "settings": experiment.settings(arm)}
            raw.add(key, Run(figures=figures, tokens=1000, cpu_seconds=1.0))
    return raw.file


@pytest.mark.parametrize(
    ("gains", "helps"), [([0.09, 0.1, 0.11], True), ([-0.09, -0.1, -0.11], False), ([-0.1, 0.1, 0.15], "not shown")]
)
def test_a_method_helps_if_its_first_claim_holds(tmp_path: Path, gains: list[float], helps: bool | str):
    found = summary(stored(tmp_path, gains))
    assert (found["helps"], found["seeds"], found["tokens"]) == (helps, [10, 11, 12], 1000)
    assert found["difference"] == pytest.approx(100 * sum(gains) / 3)
    low, high = found["interval"]
    assert low < found["difference"] < high
    assert (low > 0) == (helps is True)


def test_a_cell_says_verdict_and_difference(tmp_path: Path):
    """Mean 10 points, standard deviation 1, t(2) = 4.303: half of the interval is 4.303 / sqrt(3) = 2.5."""
    assert result(stored(tmp_path, [0.09, 0.1, 0.11])) == "yes: +10.0 (+7.5 to +12.5)"


@pytest.mark.parametrize("name", [*NAMES, *TUNING])
def test_arms_are_valid_recipes_and_claims_name_what_is_measured(name: str, untrained: str):
    experiment = find(name, "strategies")
    for arm in experiment.arms:
        check_recipe(grpo_with([*experiment.settings(arm), untrained]))
    for claim in experiment.claims:
        assert {claim.arm, claim.against or claim.arm} <= set(experiment.arms)
        assert claim.figure in experiment.figures
    assert experiment.claims[0].against == next(iter(experiment.arms)), "the first claim is about the baseline"


@pytest.mark.slow
@pytest.mark.campaign
def test_a_run_measures_every_figure_and_presses_cost_two_tokens(untrained: str):
    experiment = find("dars", "strategies")()
    experiment.budget_tokens = 600
    measured = experiment.run([*experiment.settings("equal"), untrained], 0)
    assert set(measured.figures) == set(experiment.figures)
    assert measured.tokens == 600
    assert 2 * measured.figures["environment_steps"] >= 600, "every press is a step"


def test_the_start_of_worlds_imitates_the_right_move_also_where_the_next_page_follows_a_random_one(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(worlds_start, "TASKS_PER_FAMILY", 8)
    monkeypatch.setattr(worlds_start, "NOISE", 1.0)
    chats, worlds = iter(worlds_start.start_chats()), [(name, seed) for name in FAMILIES for seed in range(1000, 1008)]
    for family, seed in worlds:
        world = make_world(family, seed)
        first = turn_text(observe(world), [])
        _, answer = next(chat for chat in chats if chat["messages"][0]["content"] == first)["messages"]
        assert answer["content"] == written(world, world.right_move())


@pytest.mark.slow
def test_a_run_on_worlds_measures_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With a start of one step per lesson, which makes no move of use, and one episode of every family at the end."""
    monkeypatch.setattr(worlds_copying, "CHATS", 20)
    for module in (worlds_copying, worlds_start):
        monkeypatch.setattr(module, "STEPS", 1)
    monkeypatch.setattr(worlds_start, "TASKS_PER_FAMILY", 2)
    monkeypatch.setattr(locks_run, "EPISODES_PER_FAMILY", 1)
    experiment = find("scaling_inter_worlds", "strategies")()
    experiment.budget_tokens = 300
    assert isinstance(experiment, Strategy)
    start = experiment.start(tmp_path / "worlds")
    measured = experiment.run([*experiment.settings("short"), f"model.path={start}"], 0)
    assert set(measured.figures) == set(experiment.figures)
    assert measured.tokens == 300
    assert measured.figures["environment_steps"] > 0
    assert measured.figures["end"] == 0.0


@pytest.mark.slow
@pytest.mark.campaign
def test_a_run_without_success_has_a_finite_logarithm(untrained: str):
    experiment = find("best_locks", "strategies")()
    experiment.budget_tokens = 100
    figures = experiment.run([*experiment.settings("grpo"), untrained], 0).figures
    assert figures["area"] < LOWEST_SUCCESS
    assert figures["log_area"] == math.log(LOWEST_SUCCESS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arm"),
    [("xrpo", "xrpo"), ("trace", "trace"), ("branch_grpo", "two trees"), ("branch_grpo", "ettrl"), ("ear", "ear")],
)
def test_a_table_measures_every_figure(name: str, arm: str):
    experiment = find(name, "strategies")()
    experiment.budget_tokens = 150
    measured = experiment.run(experiment.settings(arm), 0)
    assert set(measured.figures) == set(experiment.figures)
    assert all(0 <= value <= 1 for value in measured.figures.values())
    assert 150 <= measured.tokens < 1200, "up to one batch more"


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["ttrl", "forks"])
def test_a_vote_of_a_fork_costs_the_presses_after_it(arm: str):
    experiment = find("ettrl", "strategies")()
    experiment.budget_tokens = 100
    figures = experiment.run(experiment.settings(arm), 0).figures
    assert set(figures) == set(experiment.figures)
    # Twelve roots, and 48 children whose places are nearly uniform: half of a rollout each.
    assert figures["cost"] == pytest.approx({"ttrl": 1.0, "forks": (12 + 48 / 2) / 60}[arm], abs=0.06)
    assert figures["train_steps"] == 1


def test_a_label_is_the_most_frequent_answer():
    experiment = find("ettrl", "strategies")()
    policy = TablePolicy(world := experiment.world(0), experiment.settings("forks"), 0)
    members = Manager(world, policy, 0).group(0)
    answers = Counter(member.trajectory.turns[-1].actions[-1].canonical for member in members)
    right = " ".join([str(world.right[0])] * 6)
    assert sum(answers.values()) == 12 * (1 + 2 * 2)
    assert sum(member.trajectory.success for member in members) == answers[right]
    assert label_is_right(members) == (answers.most_common(1)[0][0] == right)


def test_a_rollout_loses_the_thread_with_its_first_wrong_press():
    experiment = find("ettrl_lost", "strategies")()
    policy = TablePolicy(world := experiment.world(0), experiment.settings("ttrl"), 0)
    lost = [
        (member.trajectory.calls[index].prompt_ids[-1] >= world.chances_QT.size, wrong)
        for member in Manager(world, policy, 0).group(0)
        for index in range(6)
        for wrong in [any(call.response_ids[0] not in world.right for call in member.trajectory.calls[:index])]
    ]
    assert all(second == wrong for second, wrong in lost)
    assert {wrong for _, wrong in lost} == {True, False}


def test_expected_turns_and_success_are_those_of_rollouts():
    world = Lengths(0)
    policy = WorldPolicy(world, [], 0)
    expected = world.expected(policy)
    rollouts = [member.trajectory for group in policy.roll_out(range(8), 400) for member in group]
    assert sum(len(one.calls) for one in rollouts) / len(rollouts) == pytest.approx(expected["turns"], rel=0.06)
    assert sum(one.success for one in rollouts) / len(rollouts) == pytest.approx(expected["success"], abs=0.03)
    assert expected["turns"] == pytest.approx((1 + 2 + 4 + 8 + 16) / 5)


def test_conversations_learn_every_press_with_all_pages_and_with_placeholders():
    presses = [("liru", 1), ("nepi", 2), ("fedi", 3)] * 5
    learned = Counter(
        (any("Simplified" in one["content"] for one in chat["messages"]), message["content"])
        for chat in chats_of(presses, "conversations", random.Random(0))
        for number, message in enumerate(chat["messages"][1::2])
        if number not in chat["unlearned"]
    )
    assert sum(learned.values()) == 2 * len(presses)
    assert {learned[False, f"click [{press}]"] + learned[True, f"click [{press}]"] for press in (1, 2, 3)} == {10}
    assert sum(count for (placeholders, _), count in learned.items() if placeholders) > 0


@pytest.mark.parametrize(
    ("name", "arm"), [("cleaner", "cleaner"), ("agent_r", "revisions"), ("webagent_r1", "warm-up")]
)
def test_locks_on_a_table_measure_every_figure(name: str, arm: str):
    experiment = find(name, "strategies")()
    experiment.budget_tokens = min(experiment.budget_tokens, 300)
    measured = experiment.run(experiment.settings(arm), 0)
    assert set(measured.figures) == set(experiment.figures)
    assert all(0 <= value <= 1 for value in measured.figures.values())
    assert measured.tokens >= experiment.budget_tokens


def test_a_mean_over_a_run_weighs_values_by_tokens():
    course = Course(tokens=[0, 10, 40], points=[{"success": 0.0}, {"success": 1.0}, {"success": 1.0}])
    assert course.mean("success") == (0.5 * 10 + 30) / 40
    assert course.end("success") == 1.0


def test_groups_with_equal_rewards_are_sampled_and_not_trained():
    policy = WorldPolicy(TwoAnswers(0.5), [], 0)
    course = train_on_contrast(policy, 80, lambda: policy.roll_out([0], 2)[0], lambda: {"version": policy.version})
    assert 0 < sum(course.mixed) < len(course.mixed)
    assert policy.version == sum(course.mixed), "one group is one train step"
    assert course.tokens == [2 * groups for groups in range(41)]


def test_presses_of_a_table_that_a_fork_shares_cost_no_tokens():
    """Two roots of four presses; each splits before the third press and both halves before the fourth."""
    experiment = find("branch_grpo", "strategies")
    policy = TablePolicy(world := experiment().world(0), experiment.settings("two trees"), 0)
    members = Manager(world, policy, 0).group(0)
    assert len(members) == 8
    assert policy.tokens == 2 * (4 + 2 + 1 + 1)
    assert sum(len(call.own_response) for one in members for call in one.trajectory.calls) == policy.tokens


@pytest.mark.slow
def test_presses_that_a_fork_shares_are_counted_once(untrained: str, tmp_path: Path):
    settings = [*find("arpo", "strategies").settings("trees"), "env.suite=locks-late", untrained]
    found = run(grpo_with(settings), tmp_path / "run", 600)
    with closing(Ledger.open(tmp_path / "run")) as ledger:
        members = [member for group in range(1, found.groups + 1) for member in ledger.groups.load(group).members]
    calls = [call for member in members for call in member.trajectory.calls]
    assert any(call.borrowed for call in calls)
    assert found.turns == sum(len(call.own_response) > 0 for call in calls) < len(calls)


@pytest.mark.parametrize("name", ["dart", "best"])
def test_an_arm_in_the_browser_is_the_recipe_of_its_name(name: str):
    """But for the end of training, the evaluations and the recipe's name, which all arms share."""
    arm = load_recipe(Path("miniwob"), InTheBrowser.settings(name)).model_dump()
    of_its_own = load_recipe(Path(name), list(InTheBrowser.common)).model_dump()
    assert {key for key in arm if arm[key] != of_its_own[key]} == {"name"}
    assert {claim.arm for claim in InTheBrowser.claims} | {"grpo"} == set(InTheBrowser.arms)


def test_the_mean_of_a_learning_curve_is_over_tokens():
    """From 40 to 60 % in the first half of the budget, then 60 %: 55 % on average. What comes later does not count."""
    points = ((0, 0.4), (50, 0.6), (100, 0.6), (150, 1.0))
    curve = [
        Reached(tag="", success=success, train_step=0, seconds=0.0, rollouts=0, generated_tokens=tokens)
        for tokens, success in points
    ]
    assert mean_success(curve, 100) == pytest.approx(0.55, abs=1e-3)
