"""The recipes that ship: valid, and different from the recipe they extend in what their READMEs name and in nothing
else."""

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from quartet.errors import ConfigError
from quartet.recipe.file import changed_settings, flatten, load_recipe, merged
from quartet.runtime.check.recipe import check_recipe

RECIPES = Path(__file__).parents[1] / "recipes"
NAMES = sorted(folder.name for folder in RECIPES.iterdir() if (folder / "recipe.toml").is_file())
TABLE = re.compile(r"^\| setting \| here \| recipes/(\w+) \|\n\|[-|]+\|\n((?:\|.*\|\n)+)", re.MULTILINE)
MADE_BY_A_COMMAND = {"agent_r", "llm_tools"}
"""Recipes whose initial policy is not in the repository."""
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


class Row(NamedTuple):
    """Settings that differ, with a cell for each of the two recipes."""

    settings: list[str]
    here: str
    base: str


def written(name: str) -> dict[str, Any]:
    """Return a recipe's file, merged over the recipe that it extends."""
    data = tomllib.loads((RECIPES / name / "recipe.toml").read_text())
    return merged(written(data["extends"]), data) if "extends" in data else data


def differences(name: str) -> tuple[str, list[Row]]:
    """Return the recipe to which a README compares its own, and the rows of the table."""
    table = TABLE.search((RECIPES / name / "README.md").read_text())
    assert table, "the README has no table of differences"
    cells = [row.strip("|").split("|") for row in table[2].splitlines()]
    return table[1], [Row(re.findall(r"`([^`]+)`", settings), here, base) for settings, here, base in cells]


def covers(named: str, setting: str) -> bool:
    """Return whether a table's row about `named`, a setting, a part or a section, is about `setting`."""
    section = named.removesuffix(".name")
    return setting == section or setting.startswith(f"{section}.")


def states(cell: str, value: Any) -> bool:
    """Return whether a cell has a name, a number, or those of a list, whose parts have names."""
    if isinstance(value, list):
        return all(states(cell, part["name"] if isinstance(part, dict) else part) for part in value)
    return value in cell if isinstance(value, str) else float(value) in map(float, NUMBER.findall(cell))


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_names_parts_that_exist(name, monkeypatch):
    monkeypatch.chdir(RECIPES.parent)
    recipe = load_recipe(RECIPES / name / "recipe.toml")
    assert recipe.name == name
    if name in MADE_BY_A_COMMAND and not Path(recipe.model.path).exists():
        with pytest.raises(ConfigError, match=r"no model at|not downloaded"):
            check_recipe(recipe)
        recipe = recipe.starting_from(str(RECIPES / "miniwob" / "policy"))
    check_recipe(recipe)


@pytest.mark.parametrize("name", [name for name in NAMES if "extends" in written(name)])
def test_a_readme_names_all_settings_that_differ_from_another_recipe_with_their_values(name, monkeypatch):
    monkeypatch.chdir(RECIPES.parent)
    base, rows = differences(name)
    recipes = [load_recipe(RECIPES / folder / "recipe.toml") for folder in (base, name)]
    changed = {*changed_settings(*recipes)} - {"name"}
    named = {setting for row in rows for setting in row.settings}
    assert {setting for setting in changed if not any(covers(one, setting) for one in named)} == set(), "not named"
    assert {one for one in named if not any(covers(one, setting) for setting in changed)} == set(), "no difference"
    unstated = [
        (setting, value)
        for row in rows
        for cell, folder in ((row.here, name), (row.base, base))
        for setting, value in flatten(written(folder)).items()
        if {setting, f"{setting}.name"} & changed and any(covers(one, setting) for one in row.settings)
        if not states(cell, value)
    ]
    assert unstated == []


@pytest.mark.parametrize("name", NAMES)
def test_a_readme_has_figures_from_raw_results_or_of_a_named_release_or_says_that_nothing_was_measured(name):
    readme = (RECIPES / name / "README.md").read_text()
    unmeasured = "**Result.** Not measured." in readme and "%" not in readme
    assert unmeasured or "<!-- results: " in readme or "release 0.1" in readme
