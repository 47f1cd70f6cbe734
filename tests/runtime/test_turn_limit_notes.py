"""A run whose training may take more turns than its evaluations prints a note."""

import json
from pathlib import Path

import pytest

from quartet.errors import SetupError
from quartet.recipe.file import load_recipe, parse_recipe
from quartet.registry import find, names
from quartet.runtime.check.turns import note_turn_limits, unapplied_limit
from tests.command import quartet

ROOT = Path(__file__).parents[2]


def test_a_dry_run_notes_a_turn_limit_that_only_evaluations_apply(tmp_path: Path) -> None:
    command = ("train", "miniwob", "--run-dir", tmp_path / "run", "--dry-run", "--set")
    noted = quartet(*command, "control.horizon=fixed")
    assert noted.returncode == 0 and "note: evaluations apply the turn limit 4 of the task family" in noted.stderr


@pytest.mark.parametrize("mended", ["control.horizon=suite", "control.horizon=longest_success", "rollout.max_turns=4"])
def test_a_horizon_that_applies_the_limit_or_as_few_turns_give_no_note(
    mended: str, capsys: pytest.CaptureFixture[str]
) -> None:
    note_turn_limits(load_recipe(Path("miniwob"), ["control.horizon=fixed"]))
    assert "its limit is rollout.max_turns = 16" in capsys.readouterr().err
    note_turn_limits(load_recipe(Path("miniwob"), ["control.horizon=fixed", mended]))
    assert not capsys.readouterr().err


def test_sessions_that_end_episodes_at_the_limit_need_no_horizon(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": str(row), "answer": row}) + "\n" for row in range(20)))
    server = {"name": "mcp", "data": str(rows), "command": ["python", "server.py"], "reward": "number"}

    def limited(**env: object) -> tuple[str, int] | None:
        rollout = {"loop": "append", "max_turns": 20}
        content = {"name": "x", "model": {"path": "."}, "env": server | env, "rollout": rollout}
        return unapplied_limit(parse_recipe(content, "test"))

    family_limit = limited()
    assert family_limit is not None and family_limit[1] == 8
    assert limited(reward_tool="judge") is None


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*/recipe.toml")), ids=lambda path: path.parent.name)
def test_training_of_a_shipped_recipe_takes_the_turns_of_its_evaluations(path: Path) -> None:
    assert unapplied_limit(load_recipe(path)) is None


@pytest.mark.parametrize("name", names("env"))
def test_training_of_a_first_recipe_takes_the_turns_of_its_evaluations(name: str) -> None:
    first = find("env", name).first_settings
    content = {"name": "x", "model": {"path": "."}, **first, "env": {"name": name} | first.get("env", {})}
    try:
        limited = unapplied_limit(parse_recipe(content, "test"))
    except SetupError as error:
        pytest.skip(error.what)
    assert limited is None
