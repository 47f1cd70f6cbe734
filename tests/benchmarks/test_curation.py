"""The curation benchmark: its statistics against numbers worked out by hand, and that a run keeps to its budget."""

import asyncio
import json
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from benchmarks.curation import main
from benchmarks.locks.demonstrations import SEEDS_PER_FAMILY, demonstrate, tasks
from benchmarks.locks.imitate import imitate
from benchmarks.locks.measure import TASKS_PER_FAMILY, Measure, solution_turns
from benchmarks.locks.report import Goal
from benchmarks.locks.run import Result, run
from benchmarks.locks.statistics import area, compare, interval, ratio_of_means
from benchmarks.locks.variants import CONDITIONS, GRPO, VARIANTS, recipe_of
from benchmarks.raw_results import RawResults
from quartet.config import Evaluation
from quartet.env.environment.locks import LOCKS, families
from quartet.ledger import Ledger
from quartet.policy.load import load_policy
from quartet.policy.make import make_policy
from quartet.policy.renderer import Renderer
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.recipe.file import changed_settings, load_recipe
from quartet.report.totals import run_totals
from quartet.rollout.loop.base import loop_of
from quartet.telemetry.record import Recorder
from quartet.types import Task

pytestmark = pytest.mark.slow

BUDGET_TOKENS = 1500


def result(all_success: float, *, rollouts: int = 80, turns: int = 400, trained_groups: int = 5) -> Result:
    by_difficulty = dict.fromkeys(("easy", "medium", "hard", "all"), all_success)
    return Result(
        curve=[(0, dict.fromkeys(by_difficulty, 0.0)), (50, by_difficulty), (100, by_difficulty)],
        success=by_difficulty,
        tokens=100,
        rollouts=rollouts,
        turns=turns,
        groups=10,
        trained_groups=trained_groups,
        train_steps=2,
        cpu_seconds=1.0,
    )


def keep(file: Path, variant: str, seed: int, kept: Result, options: list[str] | None = None) -> None:
    key = {"condition": "locks", "variant": variant, "seed": seed, "set": options or []}
    RawResults(file, Result).add(key, kept)


def test_an_interval_is_that_of_students_t():
    """Mean 3, standard deviation sqrt(2.5), t(4) = 2.776: half = 2.776 * sqrt(2.5 / 5) = 1.963."""
    assert interval([1, 2, 3, 4, 5]) == pytest.approx((3, 3 - 1.963, 3 + 1.963), abs=1e-3)
    assert interval([0.5] * 10) == (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="2 values"):
        interval([1.0])


def test_a_ratio_of_means_is_not_decided_by_a_seed_whose_baseline_is_near_0():
    """R = 2.02 / 1.01 = 2; the residuals (y - 2 x) / 0.505 are (+a, -a), so half = 12.706 * a."""
    ratio, low, high = ratio_of_means([1.0, 1.02], [0.01, 1.0])
    residual = (1.0 - 2 * 0.01) / 0.505
    assert (ratio, high - ratio, ratio - low) == pytest.approx((2, 12.706 * residual, 12.706 * residual), abs=1e-2)


def test_the_area_is_the_mean_height_of_the_curve():
    assert area(result(0.8)) == pytest.approx(0.8 * 0.75)


def test_a_comparison_pairs_seeds_and_counts_what_was_dropped():
    better = [result(0.6, rollouts=40, turns=120), result(0.8, rollouts=40, turns=120)]
    report = compare(better, [result(0.3), result(0.4)])
    assert report["success_all"] == pytest.approx(interval([0.6, 0.8]))
    assert report["success_hard_gain"] == pytest.approx(interval([0.3, 0.4]))
    assert report["area_ratio_to_grpo"] == pytest.approx((2, 2, 2))
    assert report["rollouts_ratio"] == pytest.approx((0.5, 0.5, 0.5))
    assert report["turns_ratio"] == pytest.approx((0.6, 0.6, 0.6))


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [((0.6, 0.5, 0.7), "yes"), ((0.6, 0.4, 0.8), "on average"), ((0.49, 0.4, 0.58), "no")],
)
def test_a_goal_is_reached_when_the_whole_interval_says_so(interval, verdict):
    assert Goal(claim="", variant="", figure="", bound=0.5).verdict(interval) == verdict
    mean, low, high = (1 - value for value in interval)
    assert Goal(claim="", variant="", figure="", bound=0.5, side="at most").verdict((mean, high, low)) == verdict


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_is_the_same_for_all_its_variants(name):
    condition = CONDITIONS[name]
    limits = set()
    for variant in condition.variants or VARIANTS:
        options = [*condition.options, *VARIANTS[variant].options]
        recipe = recipe_of(options, suite=condition.suite, policy="policy", seed=0)
        limits.add((recipe.rollout.max_turns, recipe.engine.max_context_tokens))
    assert len(limits) == 1


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_a_valid_recipe_that_differs_in_its_options_only(name):
    recipe = recipe_of(VARIANTS[name].options, suite="locks", policy="policy", seed=3)
    assert (recipe.seed, recipe.env.suite, recipe.model.path) == (3, "locks", str(Path("policy").resolve()))
    assert recipe.train.learning_rate == GRPO["train"]["learning_rate"]


RECIPES = ("dart", "dart_paper", "dart_code")
OF_THE_BENCHMARK = ("name", "model", "env", "rollout", "engine", "evaluation", "sft")
"""Sections that go with the environment, not with the method."""
SIZES = {
    *("control.train_seeds_per_family", "train.learning_rate", "train.warmup_steps", "train.decay_steps"),
    *("train.max_tokens_per_microbatch", "train.max_seconds", "train.max_train_steps"),
    *("train.max_rollouts", "train.target_success"),
    "train.train_steps_per_checkpoint",
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_variant_with_a_recipe_s_name_is_that_recipe(name):
    shipped = load_recipe(Path(__file__).parents[2] / "recipes" / name / "recipe.toml")
    made = recipe_of(VARIANTS[name].options, suite="locks", policy="policy", seed=0)
    different = {
        setting for setting in changed_settings(shipped, made) if setting.split(".")[0] not in OF_THE_BENCHMARK
    }
    assert different == SIZES
    assert VARIANTS[name].demonstrations == "unseen", "the recipe has none"


def test_only_training_tasks_of_hard_locks_are_demonstrated():
    for suite in ("locks", "locks-2"):
        shown = tasks(suite)
        assert {LOCKS[task.family].difficulty for task in shown} == {"hard"}
        assert {task.family for task in shown} <= set(families(suite))
        assert all(task.seed < SEEDS_PER_FAMILY < GRPO["control"]["train_seeds_per_family"] for task in shown)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("locks") / "policy"
    make_policy(["Open hall.\nheading jammed", "click [1]"], folder, vocab_size=600, hidden_size=16, num_layers=1)
    return folder


def test_a_measure_is_the_product_of_the_presses_probabilities(untrained):
    """Scored one by one with the plain model, over the same held-out tasks."""
    model, tokenizer, _ = load_policy(untrained)
    first_seed, loop = Evaluation().first_seed, loop_of(recipe_of([], suite="locks", policy=str(untrained), seed=0))
    chances = []
    for seed in range(first_seed, first_seed + TASKS_PER_FAMILY):
        for family in families("locks"):
            total = 0.0
            for example in solution_turns(Task(env="locks", family=family, seed=seed), Renderer(tokenizer), loop):
                ids = torch.tensor([example.token_ids])
                logprobs = model(input_ids=ids).logits[0].log_softmax(-1)
                learned = [i for i, flag in enumerate(example.learned) if flag]
                assert tokenizer.decode([example.token_ids[i] for i in learned]).startswith("click [")
                total += sum(logprobs[i - 1, example.token_ids[i]].item() for i in learned)
            chances.append(torch.tensor(total).exp().item())
    measured = Measure(families("locks"), first_seed, tokenizer, loop)(model)
    assert measured["all"] == pytest.approx(sum(chances) / len(chances), rel=1e-3)


LATEST, ALL, COMPRESSED = (
    ["rollout.loop=latest"],
    ["rollout.loop=screens", "engine.max_context_tokens=1024"],
    ["rollout.loop=screens", "rollout.history=compressed", "engine.max_context_tokens=1024"],
)


@pytest.mark.parametrize("options", [LATEST, ALL, COMPRESSED])
def test_measured_prompts_are_those_of_rollouts(tmp_path, untrained, options):
    """The expert's rollouts, whose presses are all right."""
    recipe = recipe_of(options, suite="locks", policy=str(untrained), seed=0)
    tokenizer, recorder = load_tokenizer(untrained), Recorder(tmp_path, "expert")
    with closing(Ledger.create(tmp_path / "run")) as ledger, closing(recorder):
        shown = asyncio.run(demonstrate(recipe, ledger, tokenizer, recorder))
    for member in shown:
        presses = solution_turns(member.trajectory.task, Renderer(tokenizer), loop_of(recipe))
        sampled = [[*call.prompt_ids, *call.response_ids] for call in member.trajectory.calls]
        assert [press.token_ids for press in presses] == sampled
        assert [sum(press.learned) for press in presses] == [len(c.response_ids) for c in member.trajectory.calls]


def test_imitation_raises_the_measured_success(tmp_path, untrained):
    options = ["sft.learning_rate=1e-2", "sft.steps=32"]
    recipe = recipe_of(options, suite="locks", policy=str(untrained), seed=0)
    found = imitate(recipe, tmp_path, 2000)
    tokens = [tokens for tokens, _ in found.curve]
    assert tokens[0] == 0 and tokens == sorted(tokens) and tokens[-1] == found.tokens == 2000
    first, last = (success["all"] for _, success in (found.curve[0], found.curve[-1]))
    assert last > 10 * first
    assert set(found.success) == {"easy", "medium", "hard", "all"}, "the policy was evaluated"


@pytest.mark.parametrize("demonstrations", [False, True])
@pytest.mark.campaign
def test_a_run_ends_with_its_budget_and_only_the_pool_can_train_an_ignorant_policy(tmp_path, untrained, demonstrations):
    """This policy presses nothing, so every group fails: without demonstrations nothing is ever trained."""
    options = [*VARIANTS["success_pool"].options, "train.groups_per_batch=1"]
    recipe = recipe_of(options, suite="locks", policy=str(untrained), seed=0)
    ended = run(recipe, tmp_path / "run", BUDGET_TOKENS, demonstrations=demonstrations)
    ledger = Ledger.open(tmp_path / "run")
    totals = run_totals(ledger)
    ledger.close()
    per_phase = recipe.max_groups_ahead * 8 * recipe.rollout.max_turns * recipe.rollout.max_tokens
    assert ended.tokens == ended.curve[-1][0] == BUDGET_TOKENS
    assert BUDGET_TOKENS <= totals.response_tokens <= BUDGET_TOKENS + per_phase
    assert (ended.rollouts, ended.turns) == (totals.train_rollouts, totals.turns), "evaluations and the expert left out"
    assert (totals.replayed > 0) == (ended.train_steps > 0) == demonstrations
    assert totals.lost == totals.trained_twice == 0


def test_a_report_is_made_of_kept_runs_and_ends_with_one_json_line(tmp_path):
    runs = tmp_path / "runs.jsonl"
    shares = {"grpo": 0.2, "success_pool": 0.4, "grpo_sft": 0.3}
    for name, seed in product(shares, (0, 1)):
        keep(runs, name, seed, result(shares[name]))
    arguments = ["--condition", "locks", "--seeds", "0-1", "--budget-tokens", "100", "--runs", str(runs), "--json"]
    for name in ("success_pool", "grpo_sft"):
        arguments += ["--variant", name]
    outcome = CliRunner().invoke(main, arguments, catch_exceptions=False)
    report = json.loads(outcome.output.splitlines()[-1])
    assert report["seeds"] == [0, 1]
    assert report["variants"]["success_pool"]["area_ratio_to_grpo"] == pytest.approx([2, 2, 2])
    assert report["variants"]["success_pool"]["success_hard_gain_over_grpo_sft"] == pytest.approx([0.1, 0.1, 0.1])
    assert set(report["variants"]) == set(shares)
    assert "| `success_pool`: success on hard locks ≥ 40 % | 40 (40 to 40) | yes |" in outcome.output


def test_runs_of_another_budget_are_not_mixed_in(tmp_path):
    runs = tmp_path / "runs.jsonl"
    keep(runs, "grpo", 0, result(0.2))
    outcome = CliRunner().invoke(main, ["--condition", "locks", "--seeds", "0-1", "--runs", str(runs)])
    assert outcome.exit_code == 2
    assert "another budget" in outcome.output


@pytest.mark.parametrize(("kept", "asked"), [([], ["loss.clip=0.3"]), (["loss.clip=0.3"], []), (["a=1"], ["a=2"])])
def test_runs_with_other_settings_are_not_mixed_in(tmp_path, kept, asked):
    runs = tmp_path / "runs.jsonl"
    keep(runs, "grpo", 0, result(0.2), kept)
    arguments = ["--condition", "locks", "--seeds", "0", "--budget-tokens", "100", "--runs", str(runs)]
    outcome = CliRunner().invoke(main, [*arguments, *(part for option in asked for part in ("--set", option))])
    assert outcome.exit_code == 2
    assert "other settings" in outcome.output
