"""Recipes: found by name from any folder, also when they lie inside an installed package; and written by `init`."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from quartet.cli import cli
from quartet.config import Recipe
from quartet.errors import QuartetError, SetupError
from quartet.recipe.description import describe
from quartet.recipe.file import load_recipe
from quartet.recipe.template import ESSENTIAL
from quartet.registry import names
from quartet.shipped import shipped_recipes
from tests.command import quartet

REPOSITORY = Path(__file__).parents[2]
POLICY = REPOSITORY / "recipes" / "miniwob" / "policy"


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object) -> QuartetError:
    error = CliRunner().invoke(cli, list(map(str, arguments))).exception
    assert isinstance(error, QuartetError)
    return error


def test_every_shipped_recipe_is_listed_and_described():
    listed = json.loads(invoke("recipes", "list", "--json"))
    assert [one["name"] for one in listed] == list(shipped_recipes())
    assert json.loads(invoke("recipes", "--json")) == json.loads(invoke("recipes", "--json", "list")) == listed
    assert json.loads(invoke("recipes", "--json", "describe", "dart"))["name"] == "dart"
    table = invoke("recipes")
    for one in listed:
        assert one["summary"] and one["claim"].startswith("**Claim to be tested.**")
        assert one["result"].startswith("**")
        assert one["name"] in table
    shown = invoke("recipes", "describe", "dart")
    assert "control.allocator" in shown and '"dynamic"' in shown
    assert "84.4 %" in invoke("recipes", "describe", "miniwob")


def test_a_setting_that_is_true_is_shown_by_its_name():
    assert describe(shipped_recipes()["dart"]).environment == "miniwob elements, miniwob-24"


def test_a_recipe_means_the_same_wherever_it_is_called_from(monkeypatch, tmp_path):
    here = load_recipe(Path("miniwob"))
    monkeypatch.chdir(tmp_path)
    assert load_recipe(Path("miniwob")) == here == load_recipe(shipped_recipes()["miniwob"])
    assert here.model.path == str(POLICY)
    assert here.sft.data == str(POLICY.parent / "start.jsonl")


def test_paths_begin_at_the_file_and_overrides_at_the_current_folder(tmp_path, monkeypatch):
    file = tmp_path / "recipe.toml"
    file.write_text('name = "x"\nmodel.path = "../policy"\nenv.name = "bandit"\nsft.data = "/data.jsonl"\n')
    monkeypatch.chdir("/")
    recipe = load_recipe(file, ["sft.output=out"])
    assert recipe.model.path == str(tmp_path.parent / "policy")
    assert (recipe.sft.data, recipe.sft.output, recipe.replay.demonstrations) == ("/data.jsonl", "/out", "")


@pytest.mark.slow
def test_an_installed_package_finds_its_recipes(tmp_path):
    """The wheel's layout, as pyproject.toml maps it: `recipes/` inside the package, and no checkout around it."""
    build = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["only-include"] == ["quartet", "recipes"]
    ignored = shutil.ignore_patterns("__pycache__", "*.jsonl")
    for folder in build["only-include"]:
        target = tmp_path / "site" / build["sources"].get(folder, folder)
        shutil.copytree(REPOSITORY / folder, target, ignore=ignored, dirs_exist_ok=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def python(*arguments: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=environment, cwd=elsewhere, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "24 task families" in python("-m", "quartet", "train", "dart", "--dry-run")
    of_a_recipe = "from quartet.shipped import import_module; print(import_module('recipes.miniwob.attempt').__file__)"
    assert python("-c", of_a_recipe).startswith(str(tmp_path / "site" / "quartet" / "recipes"))


@pytest.mark.parametrize("env", names("env"))
@pytest.mark.parametrize("flags", [(), ("--every-setting",)])
def test_a_written_recipe_is_trained_without_a_change(tmp_path, env, flags):
    file = tmp_path / "my-run" / "recipe.toml"
    try:
        invoke("init", file.parent, "--env", env, "--model", POLICY, *flags, "--set", "train.max_seconds=60")
    except SetupError as error:  # of a package that `make setup` does not install, since it needs a compiler
        assert env == "reasoning_gym" and "pip install 'quartet-rl[reasoning-gym]'" in error.advice
        pytest.skip(error.what)
    plan = json.loads(invoke("train", file, "--dry-run", "--json"))
    assert plan["families"] > 0
    recipe = load_recipe(file)
    assert (recipe.name, recipe.env.name, recipe.train.max_seconds) == ("my-run", env, 60)
    assert (
        recipe.engine.max_context_tokens == json.loads((POLICY / "config.json").read_text())["max_position_embeddings"]
    )


@pytest.mark.parametrize(("largest", "rate"), [(100_000_000, 3e-4), (1_000_000, 1e-6)])
def test_a_large_model_gets_a_low_learning_rate(tmp_path, monkeypatch, largest, rate):
    monkeypatch.setattr("quartet.cli.init.LARGE_WEIGHT_BYTES", largest)
    shutil.copytree(POLICY, tmp_path / "beside" / "model")
    for folder, model in (("new", POLICY), ("beside", tmp_path / "beside" / "model"), ("named", "miniwob-start")):
        invoke("init", tmp_path / folder, "--env", "bandit", "--model", model)
        assert load_recipe(tmp_path / folder / "recipe.toml").train.learning_rate == rate


@pytest.mark.parametrize(("given", "rate"), [([], 1e-4), (["--set", "train.learning_rate=2e-5"], 2e-5)])
def test_an_adapter_of_a_large_model_gets_the_learning_rate_of_adapters(tmp_path, monkeypatch, given, rate):
    monkeypatch.setattr("quartet.cli.init.LARGE_WEIGHT_BYTES", 1_000_000)
    invoke("init", tmp_path / "new", "--env", "bandit", "--model", POLICY, "--set", "lora.rank=16", *given)
    file = tmp_path / "new" / "recipe.toml"
    assert load_recipe(file).train.learning_rate == rate
    assert ("With `lora.rank` it is higher than for whole weights" in file.read_text()) == (not given)


def test_its_comments_are_the_docstrings_of_the_settings(tmp_path):
    invoke("init", tmp_path, "--env", "bandit", "--model", POLICY, "--every-setting")
    text = " ".join(line.lstrip("# ") for line in (tmp_path / "recipe.toml").read_text().splitlines())
    described = 0
    for info in Recipe.model_fields.values():
        for setting in getattr(info.annotation, "model_fields", {}).values():
            alone = set(getattr(info.annotation, "model_fields", {})) == {"name"}  # a part is written by its name
            if setting.description and not hasattr(setting.annotation, "model_fields") and not alone:
                assert " ".join(setting.description.split()) in text
                described += 1
    assert described > 80
    for dotted in ESSENTIAL:
        section, _, setting = dotted.rpartition(".")
        model = Recipe.model_fields[section].annotation if section else Recipe
        assert setting in model.model_fields, f"{dotted} is no setting any more"  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["doors", "doors:Doors"])
def test_init_takes_an_environment_of_the_current_folder(tmp_path, name):
    quartet("env", "new", "doors", folder=tmp_path)
    made = quartet("init", "agent", "--env", name, "--model", "miniwob-start", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    assert 'name = "doors:Doors"' in (tmp_path / "agent" / "recipe.toml").read_text()
    planned = quartet("train", "agent/recipe.toml", "--dry-run", folder=tmp_path)
    assert planned.returncode == 0, planned.stderr
    unknown = quartet("init", "other", "--env", "dors", "--model", "miniwob-start", folder=tmp_path)
    assert "For one of your own, write module:Class" in unknown.stderr


def test_init_without_a_terminal_asks_and_replaces_nothing(tmp_path):
    assert refused("init", tmp_path, "--model", POLICY).what == "--env is missing"
    missing = refused("init", tmp_path, "--env", "bandit")
    assert missing.what == "--model is missing"
    assert missing.advice.startswith("give --model FOLDER, or a name: ") and "miniwob-start" in missing.advice
    suggested = "; a shipped recipe for this environment has "
    assert suggested not in missing.advice
    assert refused("init", tmp_path, "--env", "worlds").advice.endswith(f"{suggested}worlds-start")
    assert "Did you mean 'bandit'" in str(refused("init", tmp_path, "--env", "bandid", "--model", POLICY))
    assert "no model at" in refused("init", tmp_path, "--env", "bandit", "--model", tmp_path).what
    assert not list(tmp_path.iterdir())
    (tmp_path / "recipe.toml").write_text("mine")
    assert "already exists" in refused("init", tmp_path, "--env", "bandit", "--model", POLICY).what
    wrong = refused("init", tmp_path, "--env", "bandit", "--model", POLICY, "--force", "--set", "loss.terms=ppo_clib")
    assert "Did you mean 'ppo_clip'" in str(wrong)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("recipe.toml", "mine")]


@pytest.mark.slow
def test_many_mistakes_are_one_screen(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text(
        'name = "x"\nmodel.path = "."\nenv.name = "bandit"\n[train]\n' + "".join(f"a{n} = 1\n" for n in range(40))
    )
    message = refused("train", file, "--dry-run").what
    assert message.endswith("and 30 more") and message.count("\n") == 10
