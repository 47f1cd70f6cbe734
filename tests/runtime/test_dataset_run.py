"""A run on a data set, with the reward in its child process, in one process and to the end."""

from pathlib import Path

import pytest

from quartet.recipe.file import load_recipe
from quartet.runtime.run import run_recipe
from tests.command import quartet

RECIPE = Path(__file__).parents[2] / "recipes" / "dataset_math" / "recipe.toml"
SHORT = ["runtime.kind=synchronous", "admission.max_lag=0", "train.max_train_steps=2", "train.groups_per_batch=2"]


@pytest.mark.slow
def test_a_short_run_trains_on_rewards_and_evaluates_on_held_out_rows(tmp_path):
    recipe = load_recipe(RECIPE, [*SHORT, "evaluation.episodes_per_family=4", "control.rollouts_per_group=4"])
    summary = run_recipe(recipe, tmp_path / "run", resume=False, fresh=False, quiet=True)
    assert summary["train_steps"] == 2
    assert summary["lost"] == summary["trained_twice"] == 0
    assert set(summary["statuses"]) == {"completed"}


@pytest.mark.slow
def test_a_run_that_its_recipe_keeps_from_starting_is_started_anew_since_resume_keeps_the_recipe(tmp_path):
    (tmp_path / "own_reward.py").write_text("def score(response):\n    return 1.0\n")
    wrong = quartet("train", RECIPE, "--run-dir", "run", "--set", "env.reward=own_reward:scor", folder=tmp_path)
    assert wrong.returncode == 2, wrong.stderr
    assert "'own_reward' has no attribute 'scor'" in wrong.stderr
    assert "-> then start the run again with --fresh; it has no rollouts yet" in wrong.stderr
    assert "to watch the run" not in wrong.stderr, "it never came up"
    assert "--resume" not in wrong.stderr.rpartition("error: ")[2]
    status = " ".join(quartet("status", "run", folder=tmp_path).stdout.replace("│", " ").split())
    assert "if the recipe is wrong, correct it and start again with --fresh; otherwise continue with:" in status
