"""A run whose episodes would end before their environment judges them is refused at its start."""

import json
from pathlib import Path
from typing import Any

import pytest

from quartet.config import Recipe
from quartet.env.environment.harbor import EXAMPLE
from quartet.errors import ConfigError
from quartet.recipe.file import load_recipe, parse_recipe
from quartet.runtime.check.recipe import check_recipe

MCP = {"name": "mcp", "command": ["python", "server.py"], "turn_limit": 20, "reward": "number"}
OWN_LIMITS: dict[str, tuple[dict[str, Any], int]] = {
    "harbor": ({"name": "harbor", "tasks": EXAMPLE, "held_out": EXAMPLE, "step_timeout_seconds": 150.0}, 20),
    "osworld": ({"name": "osworld"}, 30),
    "desktop": ({"name": "desktop"}, 14),
    "mcp": ({**MCP, "reward_tool": "judge"}, 20),
}


def recipe(env: dict[str, Any], max_turns: int, data: Path) -> Recipe:
    """Return a recipe with these turns; an MCP server gets a data set."""
    if env["name"] == "mcp":
        data.write_text("".join(json.dumps({"prompt": str(row), "answer": row}) + "\n" for row in range(20)))
        env = {**env, "data": str(data)}
    model, rollout = {"path": "miniwob-start"}, {"loop": "append", "max_turns": max_turns}
    content = {"name": "x", "model": model, "env": env, "rollout": rollout, "engine": {"max_context_tokens": 256}}
    return parse_recipe(content, "test")


@pytest.mark.parametrize(("env", "limit"), OWN_LIMITS.values(), ids=OWN_LIMITS)
def test_fewer_turns_than_the_limit_at_which_the_environment_judges_are_refused(
    env: dict[str, Any], limit: int, tmp_path: Path
) -> None:
    check_recipe(recipe(env, limit, tmp_path / "rows.jsonl"))
    with pytest.raises(ConfigError, match=rf"(?s)max_turns = {limit - 1} .*the {limit} turns .*max_turns={limit} or"):
        check_recipe(recipe(env, limit - 1, tmp_path / "rows.jsonl"))


def test_only_families_of_the_recipe_need_their_turns() -> None:
    check_recipe(load_recipe(Path("desktop"), ["model.path=miniwob-start"]))
    with pytest.raises(ConfigError, match="'make_folder'"):
        check_recipe(load_recipe(Path("desktop"), ["rollout.max_turns=7"]))


def test_an_mcp_server_that_rewards_only_answers_may_have_fewer_turns(tmp_path: Path) -> None:
    check_recipe(recipe(MCP, 2, tmp_path / "rows.jsonl"))
