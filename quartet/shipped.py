"""The recipes and policies that ship with Quartet, inside the installed package or beside it in a checkout, and the
models of the user's cache."""

import importlib
import os
from pathlib import Path
from types import ModuleType

RECIPE_FILE = "recipe.toml"
INCOMPLETE = (".writing", ".replaced")
"""Ends of the names of folders that `quartet.files.whole_folder` has not yet put in their place, or will delete."""
_PACKAGE = Path(__file__).resolve().parent


def recipes_folder() -> Path:
    """Return the folder of recipes: inside the package in a wheel, at the root in a checkout."""
    inside = _PACKAGE / "recipes"
    return inside if inside.is_dir() else _PACKAGE.parent / "recipes"


def import_module(name: str) -> ModuleType:
    """Import a module. `recipes.NAME.MODULE` is a module of a shipped recipe; in a wheel it is
    `quartet.recipes.NAME.MODULE`."""
    inside = name.startswith("recipes.") and recipes_folder().parent == _PACKAGE
    return importlib.import_module(f"quartet.{name}" if inside else name)


def shipped_policies() -> dict[str, Path]:
    """Return the folders of the recipes' initial policies by name; `miniwob-start` is that of the recipe `miniwob`."""
    folders = sorted(recipes_folder().glob("*/policy/config.json"))
    return {f"{file.parent.parent.name}-start": file.parent for file in folders}


def shipped_recipes() -> dict[str, Path]:
    """Return the recipe files by name, sorted."""
    return {file.parent.name: file for file in sorted(recipes_folder().glob(f"*/{RECIPE_FILE}"))}


def models_folder() -> Path:
    """Return the folder of models that `quartet model` has made: in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quartet" / "models"


def named_policies() -> dict[str, Path]:
    """Return the folders of all policies that have a name: the shipped ones, then the models of the user's cache."""
    cached = [file.parent for file in sorted(models_folder().glob("*/checksums.json"))]
    # A process that is killed between writing the checksums and its last rename leaves folders that have them.
    return shipped_policies() | {one.name: one for one in cached if not one.name.endswith(INCOMPLETE)}
