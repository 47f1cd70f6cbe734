"""Recipes as files: read, override, validate with a helpful error, write resolved, compare at resume."""

import json
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from quartet.config import RESUMABLE_KNOBS, PathMark, Recipe
from quartet.errors import ConfigError, nearest
from quartet.shipped import shipped_recipes

CONFIG = "config.toml"
"""The resolved recipe of a run, in its folder."""
MOST_PROBLEMS = 10
"""So many are told at once: an error is one screen."""


def load_recipe(path: Path, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe's file, or the shipped recipe of that name, and apply dotted overrides.

    Raises `ConfigError` that names the key and the nearest valid one.
    """
    path = find_recipe(path)
    try:
        data = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    _place_paths(data, Recipe, path.resolve().parent)
    for override in overrides or []:
        apply_override(data, override)
    return parse_recipe(data, source=str(path), overrides=overrides)


def find_recipe(path: Path) -> Path:
    """The file itself, or the file of the shipped recipe of that name.

    Raises `ConfigError` with the nearest name, or with what a run's folder has instead.
    """
    if path.is_file():
        return path
    if (path / CONFIG).is_file():
        raise ConfigError(f"{path} is a run's folder, and no recipe", f"its recipe is {path / CONFIG}")
    if path.name == CONFIG and _is_run(path.parent):
        raise ConfigError(f"the run's {path} is missing", "take it from where the run was made: a copy needs it too")
    shipped = shipped_recipes()
    if str(path) not in shipped:
        raise ConfigError(
            f"no recipe at {path}, and none of that name ships",
            f"{nearest(str(path), shipped)} `quartet init` writes one of your own",
        )
    return shipped[str(path)]


def _is_run(folder: Path) -> bool:
    from quartet.data.database import has_database  # imports SQLAlchemy, which recipes do without

    return has_database(folder)


def _place_paths(data: dict[str, Any], model: Any, folder: Path) -> None:
    """Relative paths of a recipe's file begin at its folder."""
    for name, info in model.model_fields.items():
        value = data.get(name)
        if isinstance(value, dict) and hasattr(info.annotation, "model_fields"):
            _place_paths(value, info.annotation, folder)
        elif isinstance(value, str) and value and any(isinstance(mark, PathMark) for mark in info.metadata):
            data[name] = str(folder / value)


def parse_recipe(data: dict[str, Any], source: str, overrides: list[str] | None = None) -> Recipe:
    """Validate a plain dict. An error names the override that set the knob, or else `source`."""
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        named = {override.partition("=")[0]: f"--set {override}" for override in overrides or []}
        lines: list[str] = []
        for problem in error.errors():
            place, text = ".".join(str(part) for part in problem["loc"]), _explain(dict(problem))
            by = next((given for key, given in named.items() if _concerns(key, place, text)), source)
            lines.append(f"{by}: {text}")
        more = [f"and {len(lines) - MOST_PROBLEMS} more"] if len(lines) > MOST_PROBLEMS else []
        if len(lines) == 1:
            what, _, advice = lines[0].partition(" -> ")
            raise ConfigError(what, advice) from error
        raise ConfigError("\n       ".join([*lines[:MOST_PROBLEMS], *more])) from error


def apply_override(data: dict[str, Any], override: str) -> None:
    """Set one `section.key=value`; the value is read as TOML, or as a plain string when it is none."""
    dotted, equals, text = override.partition("=")
    if not equals or not dotted:
        raise ConfigError(f"--set {override!r} is not of the form section.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *sections, key = dotted.split(".")
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            raise ConfigError(f"--set {override!r}: {section!r} is a value, not a section")
    data[key] = value


def changed_knobs(old: Recipe, new: Recipe) -> list[str]:
    """Dotted names whose values differ."""
    before, after = flatten(old.model_dump()), flatten(new.model_dump())
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def refuse_changes(old: Recipe, new: Recipe) -> None:
    """Raise `ConfigError` when a knob changed that may not change at resume."""
    allowed = tuple(RESUMABLE_KNOBS)
    fixed = [k for k in changed_knobs(old, new) if not any(k == a or k.startswith(a + ".") for a in allowed)]
    if fixed:
        raise ConfigError(
            f"cannot change {', '.join(fixed)} at resume", f"start a new run, or change only: {', '.join(allowed)}"
        )


def to_toml(recipe: Recipe) -> str:
    """The resolved recipe as TOML; `load_recipe` reads it back unchanged."""
    return "\n".join(_toml_lines(recipe.model_dump(exclude_none=True))) + "\n"


def flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as one dict of dotted names."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _toml_lines(data: dict[str, Any], section: str = "") -> list[str]:
    """The section's own values, then its sub-sections: in this order TOML reads them back."""
    lines = [f"{key} = {toml_value(value)}" for key, value in data.items() if not isinstance(value, dict)]
    for key, values in data.items():
        if isinstance(values, dict):
            lines += ["", f"[{section}{key}]", *_toml_lines(values, f"{section}{key}.")]
    return lines


def toml_value(value: Any) -> str:
    """TOML's strings, numbers, booleans and lists are JSON's, but for the delete character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _explain(problem: dict[str, Any]) -> str:
    """One validation problem as a sentence."""
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] != "extra_forbidden":
        message = problem["msg"].removeprefix("Value error, ")
        return f"{place}: {message}" if place else message
    model: Any = Recipe
    for part in problem["loc"][:-1]:
        model = model.model_fields[part].annotation
    name, section = str(problem["loc"][-1]), place.rpartition(".")[0]
    elsewhere = [knob for knob in flatten(_all_knobs(Recipe)) if knob.endswith(f".{name}") and name != "name"]
    if elsewhere and not get_close_matches(name, model.model_fields, n=1, cutoff=0.75):
        return f"unknown key {place!r}. Did you mean {' or '.join(map(repr, elsewhere))}?"
    here = [f"{section}.{knob}" if section else knob for knob in model.model_fields]
    return f"unknown key {place!r}. {nearest(place, here)}"


def _concerns(key: str, place: str, text: str) -> bool:
    """Whether the knob `key` has to do with a problem at `place`; one between knobs has no place, but names them."""
    return _within(key, place) or _within(place, key) if place else f"{key} " in text


def _within(key: str, place: str) -> bool:
    """Whether `key` is `place` or a part of it, in dotted names."""
    return key == place or key.startswith(f"{place}.")


def _all_knobs(model: Any) -> dict[str, Any]:
    """Every section and knob as nested dicts."""
    return {
        name: _all_knobs(info.annotation) if hasattr(info.annotation, "model_fields") else None
        for name, info in model.model_fields.items()
    }
