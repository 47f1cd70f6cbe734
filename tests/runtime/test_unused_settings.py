"""Settings that have no effect beside others are noted, and no run is refused for them."""

from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.recipe.file import load_recipe, to_toml
from quartet.runtime.check.unused import unused_settings
from tests.command import quartet

ROOT = Path(__file__).parents[2]
TEXTS = "rollout.guidance={name = 'text', texts = {fixed = 'Press left.'}}"
NOTES = [
    (TEXTS, "rollout.guidance has no effect: the allocator 'fixed' guides no rollouts", "control.allocator=guided"),
    (
        "train.overlong_cache_tokens=4",
        "train.overlong_cache_tokens has no effect: without train.overlong_max_tokens",
        "train.overlong_max_tokens=8",
    ),
    (
        "train.exempt_replayed_turns=true",
        "train.exempt_replayed_turns has no effect: the recipe has no replay",
        "replay=success_pool",
    ),
    ("loss.replay_share=0.5", "loss.replay_share has no effect: the recipe has no replay", "replay=success_pool"),
    ("evaluation.blind=true", "evaluation.blind has no effect: the policy reads no pictures", "evaluation.blind=false"),
]


@pytest.mark.parametrize(("setting", "note", "mended"), NOTES)
def test_a_dry_run_notes_a_setting_without_effect(
    setting: str, note: str, mended: str, bandit_policy: Path, tmp_path: Path
) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(bandit_recipe(bandit_policy)))
    command = ("train", path, "--run-dir", tmp_path / "run", "--dry-run", "--set", setting)
    noted = quartet(*command)
    assert noted.returncode == 0 and f"note: {note}" in noted.stderr
    silent = quartet(*command, "--set", mended)
    assert silent.returncode == 0 and note not in silent.stderr


def test_turns_are_exempt_only_from_a_percentile(bandit_policy: Path) -> None:
    def noted(**train: object) -> list[str]:
        recipe = bandit_recipe(bandit_policy, replay={"name": "success_pool"}, train=train)
        return [f"{one.setting}: {one.reason}" for one in unused_settings(recipe)]

    reason = "train.exempt_replayed_turns: the recipe has no train.min_turn_entropy_percentile"
    assert noted(exempt_replayed_turns=True) == [reason]
    assert noted(exempt_replayed_turns=True, min_turn_entropy_percentile=20) == []


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*/recipe.toml")), ids=lambda path: path.parent.name)
def test_a_shipped_recipe_has_no_setting_without_effect(path: Path) -> None:
    recipe = load_recipe(path)
    if recipe.evaluation.blind:  # the recipe's own script makes its model
        recipe = recipe.model_copy(update={"evaluation": recipe.evaluation.model_copy(update={"blind": False})})
    assert list(unused_settings(recipe)) == []
