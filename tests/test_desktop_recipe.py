"""`recipes/desktop`: its rollouts run on real desktops, and its experts' demonstrations have the form of prompts."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from quartet.recipe.file import load_recipe
from quartet.runtime.run import evaluate_policy
from quartet.shipped import shipped_policies
from recipes.desktop.demonstrate import main

pytestmark = [pytest.mark.desktop, pytest.mark.slow]


def test_the_browser_policy_plays_on_desktops(tmp_path: Path) -> None:
    few = ['env.families=["open_folder"]', "env.sessions=2", "evaluation.episodes_per_family=2", "rollout.max_turns=6"]
    recipe = load_recipe(Path("desktop"), few)
    summary = evaluate_policy(recipe, shipped_policies()["miniwob-start"], tmp_path / "run", quiet=True)
    assert summary["episodes"] == 4
    assert set(summary["per_task"]) == {"open_folder"}


def test_demonstrations_are_the_experts_turns(tmp_path: Path) -> None:
    arguments = ["--families", "open_folder", "--seeds", "2", "--output", str(tmp_path / "start.jsonl")]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert "2 of 2 attempts succeeded" in result.output
    chats = [json.loads(line) for line in (tmp_path / "start.jsonl").read_text().splitlines()]
    assert [(chat["seed"], chat["turn"]) for chat in chats] == [(seed, turn) for seed in (0, 1) for turn in (0, 1, 2)]
    prompts, actions = zip(*([message["content"] for message in chat["messages"]] for chat in chats), strict=True)
    assert [action.split(" ")[0] for action in actions] == ["click", "key", "done"] * 2
    assert "\nwindow user [1] active\n" in prompts[0]
    assert prompts[1].endswith(f"did {actions[0]}")
