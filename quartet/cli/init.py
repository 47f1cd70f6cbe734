"""`quartet init`: write a commented recipe for an environment and a model."""

import json
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

import click

from quartet.cli.env.naming import environment_name
from quartet.cli.lacks import load_code, note_packages
from quartet.cli.parameters import JSON, SET
from quartet.errors import ConfigError
from quartet.terminal.say import say

if TYPE_CHECKING:
    from quartet.config import Recipe

LONGEST_CONTEXT_TOKENS = 4096
"""Maximum `engine.max_context_tokens` written to a recipe; a longer context takes too much memory for a first run."""
LONGEST_CONTEXT_WITH_PICTURES = 16_384
"""The same for a model that reads pictures: five screens of 1920 x 1080 pixels take up to 13,500 tokens."""
LARGE_WEIGHT_BYTES = 100_000_000
"""Size of weights above which a recipe gets the rate below. Policies that Quartet makes are smaller."""
LEARNING_RATE_OF_LARGE_WEIGHTS, LEARNING_RATE_OF_ADAPTERS = 1e-6, 1e-4
PICTURES = {"min": 3, "every": 3}
"""A prompt shows the newest three to five pictures."""


@click.command(name="init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.option("--env", "env", help="Environment: a name, or `module:Class`; asked for if missing.")
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    help="Folder of a model in Hugging Face format, or a name: miniwob-start.",
)
@click.option("--every-setting", is_flag=True, help="Add all other settings, commented out.")
@click.option("--force", is_flag=True, help="Replace an existing recipe.")
@SET
@JSON
def command(
    folder: Path,
    env: str | None,
    model: Path | None,
    every_setting: bool,
    force: bool,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write FOLDER/recipe.toml (by default in the current folder): the settings of a first run, each explained."""
    from quartet.files.disk import usable_output, whole_file
    from quartet.recipe.file import load_recipe, parse_recipe
    from quartet.recipe.paths import move_paths
    from quartet.recipe.template import commented_recipe
    from quartet.registry import names
    from quartet.runtime.check.recipe import check_recipe
    from quartet.shipped import RECIPE_FILE

    file = folder / RECIPE_FILE
    if file.exists() and not force:
        raise ConfigError(f"{file} already exists", "name another folder, or replace it with --force")
    known_envs = names("env")
    env_name = environment_name(
        env
        or _ask(
            "--env",
            "Environment",
            advice=f"give one of {', '.join(known_envs)}",
            type=click.Choice(known_envs),
            quiet=as_json,
        )
    )
    known, folder_type = _known_model(env_name), click.Path(path_type=Path)
    model_path: Path = model or _ask(
        "--model", "Model folder", advice=_models(known), default=known, type=folder_type, quiet=as_json
    )
    chosen = _chosen(folder, env_name, model_path, overrides)
    parsed = parse_recipe(chosen, "quartet init", [*overrides])  # no template has a place for unknown settings
    reasons = _set_learning_rate(chosen, parsed, model_path)
    move_paths(chosen, folder)
    text = commented_recipe(chosen, reasons=reasons, every_setting=every_setting)
    with usable_output(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with usable_output(file), whole_file(file) as fresh:
        fresh.write_text(text)
        try:
            recipe = load_recipe(fresh)
            check_recipe(recipe)
            load_code(recipe)
        except ConfigError:
            fresh.unlink()
            raise
    note_packages(recipe)
    if as_json:
        say(json.dumps({"recipe": str(file), "env": env_name, "model": str(model_path)}))
        return
    train = f"quartet train {quote(str(file))}"
    say(f"wrote {file}\n\n{train} --dry-run   prints batch sizes and limits\n{train}             trains")


def _ask(option: str, question: str, *, advice: str, quiet: bool, **how: Any) -> Any:
    """Prompt for a missing option. Raise `ConfigError` with `advice` if there is no terminal."""
    if quiet or not sys.stdin.isatty():
        raise ConfigError(f"{option} is missing", advice)
    return click.prompt(question, **how)


def _models(known: str | None) -> str:
    """Return advice that lists the models by name, with the one that a shipped recipe has for the environment."""
    from quartet.shipped import named_policies

    suggested = f"; a shipped recipe for this environment has {known}" if known else ""
    return f"give --model FOLDER, or a name: {', '.join(named_policies())}{suggested}"


def _known_model(env: str) -> str | None:
    """Return the model of a shipped recipe with this environment, to suggest it: its name if it has one, otherwise its
    folder; None if there is no such recipe."""
    from quartet.recipe.file import load_recipe
    from quartet.shipped import named_policies, shipped_recipes

    recipes = (load_recipe(path) for path in shipped_recipes().values())
    path = next((recipe.model.path for recipe in recipes if recipe.env.name == env), None)
    return next((name for name, folder in named_policies().items() if str(folder) == path), path)


def _named(model: Path) -> Path | None:
    """Return the folder of the policy that has this name; None if `model` is a folder itself."""
    from quartet.shipped import named_policies

    return None if model.exists() else named_policies().get(str(model))


def _chosen(folder: Path, env: str, model: Path, overrides: tuple[str, ...]) -> dict[str, Any]:
    """Return the values that differ from defaults: the environment's first settings, the model, and the overrides.
    Their relative paths begin at the current folder.

    A model that reads pictures gets a history that bounds them, and the format of actions of its kind.
    """
    from quartet.env.base import Environment
    from quartet.policy.kind.find import kind_of
    from quartet.recipe.file import apply_override
    from quartet.registry import find
    from quartet.runtime.check.model import check_model_folder, model_positions

    named = _named(model)
    check_model_folder(named or model)
    kind, positions = kind_of(named or model), model_positions(named or model)
    environment = cast(type[Environment], find("env", env))
    chosen: dict[str, Any] = {section: dict(settings) for section, settings in environment.first_settings.items()}
    chosen["name"] = folder.resolve().name
    chosen["model"] = {"path": str(model)}
    chosen["env"] = {"name": env} | chosen.get("env", {})
    context = LONGEST_CONTEXT_WITH_PICTURES if kind.reads_pictures else LONGEST_CONTEXT_TOKENS
    context = min(positions or context, context)
    chosen["engine"] = {"max_context_tokens": context}
    if kind.reads_pictures and environment.typed_actions:
        seen = {"loop": "screens", "history": {"name": "interval", **PICTURES}, "actions": kind.actions}
        chosen["rollout"] = chosen.get("rollout", {}) | seen
        chosen["train"] = chosen.get("train", {}) | {"max_tokens_per_microbatch": context}
    for override in overrides:
        apply_override(chosen, override)
    return chosen


def _set_learning_rate(chosen: dict[str, Any], parsed: "Recipe", model: Path) -> dict[str, str]:
    """Add a learning rate for an adapter or a large model, unless one is given. Return its reason, by its setting.

    Large is a model with more weights than policies that Quartet makes.
    """
    train = chosen.setdefault("train", {})
    weights = sum(file.stat().st_size for file in (_named(model) or model).glob("*.safetensors"))
    if "learning_rate" in train:
        return {}
    if parsed.lora.rank:
        rate, reason = LEARNING_RATE_OF_ADAPTERS, "With `lora.rank` it is higher than for whole weights: 1e-5 to 5e-4."
    elif weights > LARGE_WEIGHT_BYTES:
        rate, reason = LEARNING_RATE_OF_LARGE_WEIGHTS, "It is low, since all weights of a large model are trained."
    else:
        return {}
    train["learning_rate"] = rate
    return {"train.learning_rate": reason}
