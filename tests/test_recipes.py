"""The recipes that ship: valid, and different from each other in what their READMEs name and in nothing else."""

from pathlib import Path

import pytest

from quartet.recipe.file import changed_settings, load_recipe
from quartet.runtime.plan import check_recipe

RECIPES = Path(__file__).parents[1] / "recipes"
NAMES = sorted(folder.name for folder in RECIPES.iterdir() if (folder / "recipe.toml").is_file())
STATISTICS = {"credit.name", "loss.aggregation", "loss.terms", "loss.terms.kl.estimator", "loss.terms.kl.weight"}
IMPORTANCE = ("importance", "importance_cap", "importance_floor", "importance_level")
POLICY_TERM = ("clip_high", "clip_low", "dual_clip", *IMPORTANCE)
DIFFERENCES = {
    "dart_paper": {
        *STATISTICS,
        "train.min_turn_entropy_percentile",
        "control.allocator.min_rollouts",
        "control.horizon.longest_success.factor",
        "control.horizon.longest_success.groups_per_exploration",
        "control.horizon.longest_success.min_successes",
        "control.horizon.longest_success.truncated_share",
        "replay.max_replays",
        "replay.mode",
    },
    "dart_code": {
        *STATISTICS,
        "control.allocator.min_rollouts",
        "control.allocator.name",
        "control.allocator.success_threshold",
        "control.horizon.longest_success.factor",
        "control.horizon.longest_success.groups_per_exploration",
        "control.horizon.longest_success.min_successes",
        "control.horizon.longest_success.truncated_share",
        "control.horizon",
        "filters.short_failures.min_turns",
        "filters",
        *(f"loss.terms.{name}.{key}" for name in ("gspo", "ppo_clip") for key in (*POLICY_TERM, "weight")),
        "replay.choice",
        "replay.max_replays",
        "train.max_grad_norm",
        "train.weight_decay",
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_names_parts_that_exist(name, monkeypatch):
    monkeypatch.chdir(RECIPES.parent)
    recipe = load_recipe(RECIPES / name / "recipe.toml")
    assert recipe.name == name
    check_recipe(recipe)


@pytest.mark.parametrize("name", DIFFERENCES)
def test_the_three_darts_differ_in_named_options_only(name):
    dart, other = (load_recipe(RECIPES / folder / "recipe.toml") for folder in ("dart", name))
    assert set(changed_settings(dart, other)) == DIFFERENCES[name] | {"name"}


@pytest.mark.parametrize("name", NAMES)
def test_a_readme_has_figures_from_raw_results_or_of_a_named_release_or_says_that_nothing_was_measured(name):
    readme = (RECIPES / name / "README.md").read_text()
    unmeasured = "**Result.** Not measured." in readme and "%" not in readme
    assert unmeasured or "<!-- results: " in readme or "release 0.1" in readme
