"""Recipes as files: read, override, validate with helpful errors, write resolved, compare at resume."""

import copy
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from quartet.config import RESUMABLE_SETTINGS, Choice, Recipe
from quartet.errors import ConfigError, nearest, shortened
from quartet.files.ledger_files import has_database
from quartet.recipe.errors import problems_of, raise_for
from quartet.recipe.parts import validated_parts, with_parts
from quartet.recipe.paths import place_paths, place_paths_of_parts
from quartet.recipe.toml_text import read_toml, toml_key, toml_value
from quartet.recipe.upgrade import upgraded
from quartet.registry import import_plugins
from quartet.shipped import RECIPE_FILE, shipped_recipes

_CLOSE = 0.7
"""Least similarity of a shipped recipe's name that an error suggests."""
CONFIG = "config.toml"
"""Name of the file with the resolved recipe of a run, in the run's folder."""


def load_recipe(path: Path, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe's file, or the shipped recipe of that name, apply dotted overrides, and resolve its parts.

    Raise `ConfigError` that names the key and the nearest valid one.
    """
    path = find_recipe(path)
    return parse_recipe(_read(path), source=str(path), overrides=overrides, folder=path.resolve().parent)


def read_resolved(path: Path) -> Recipe:
    """Read a run's resolved recipe, of this or an older version, without importing its parts. Raise `ConfigError`."""
    path = find_recipe(path)
    return _validated(_read(path), str(path), [])


def read_with_plugins(path: Path) -> Recipe:
    """Read a run's resolved recipe and import its plugins, for commands that use its parts. Raise `ConfigError`."""
    recipe = read_resolved(path)
    import_plugins(recipe.plugins)
    return recipe


def _read(path: Path, extending: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a file as plain data: upgraded, merged over the recipe that it extends, with absolute paths.

    `extending` are the files that extend it. Raise `ConfigError` if it is one of them.
    """
    if (extending := (*extending, path.resolve())).count(path.resolve()) > 1:
        circle = " extends ".join(map(str, extending))
        raise ConfigError(f"{circle}: the recipes extend each other", "remove `extends` from one of them")
    data = upgraded(read_toml(path))
    place_paths(data, path.resolve().parent)
    if len(extending) > 1:
        place_paths_of_parts(data, path.resolve().parent)
    base = data.pop("extends", None)
    if base is None:
        return data
    if not isinstance(base, str):
        raise ConfigError(f"{path}: extends = {base!r} is not a recipe", "name a shipped recipe or a file")
    beside = path.resolve().parent / base
    return merged(_read(find_recipe(beside if beside.is_file() else Path(base)), extending), data)


def merged(base: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `data` over it, section by section.

    A part with another name replaces the part of `base` and all its settings; lists are replaced as a whole.
    """
    result = dict(base)
    for key, value in data.items():
        below = _table(result.get(key))
        same_part = (
            isinstance(value, dict) and isinstance(below, dict) and value.get("name") in (None, below.get("name"))
        )
        result[key] = merged(below, value) if same_part else value
    return result


def find_recipe(path: Path) -> Path:
    """Return the file itself, the `recipe.toml` of a folder, or the file of the shipped recipe of that name.

    Raise `ConfigError` with the nearest name, or with the recipe of a run's folder.
    """
    if path.is_file():
        return path
    if (path / RECIPE_FILE).is_file():
        return path / RECIPE_FILE
    if (path / CONFIG).is_file():
        raise ConfigError(f"{path} is a run's folder, not a recipe", f"give its recipe: {path / CONFIG}")
    if path.name == CONFIG and has_database(path.parent):
        raise ConfigError(f"the run's {path} is missing", "copy it from the original run folder")
    shipped = shipped_recipes()
    if str(path) in shipped:
        return shipped[str(path)]
    if path.suffix or len(path.parts) > 1 or path.is_dir():
        cause = f"the folder has no {RECIPE_FILE}" if path.is_dir() else "the file does not exist"
        name = path.parent.name if path.name == RECIPE_FILE else path.stem
        close = [f"Did you mean the shipped recipe {one!r}? " for one in get_close_matches(name, shipped, 1, _CLOSE)]
        raise ConfigError(
            f"no recipe at {path}: {cause}",
            f"{''.join(close)}`quartet recipes` lists the shipped recipes, `quartet init` writes a new one",
        )
    raise ConfigError(
        f"no recipe at {path}, and no shipped recipe has that name",
        f"{nearest(str(path), shipped, _CLOSE)} `quartet init` writes a new one",
    )


def parse_recipe(
    data: dict[str, Any], source: str, overrides: list[str] | None = None, folder: Path | None = None
) -> Recipe:
    """Apply dotted overrides to a copy of a plain dict, validate it, and resolve its parts.

    An error names the override that set the key, otherwise `source`. Paths in the settings of parts are relative to
    `folder`, by default the current folder; those of overrides to the current folder.
    """
    folder, overrides, data = folder or Path.cwd(), overrides or [], copy.deepcopy(data)
    for override in overrides:
        apply_override(data, override)
    recipe = _validated(data, source, overrides, folder)
    import_plugins(recipe.plugins)
    recipe, problems = with_parts(recipe, folder, [override.partition("=")[0] for override in overrides])
    raise_for(problems, source, overrides)
    return recipe


def _validated(data: dict[str, Any], source: str, overrides: list[str], folder: Path | None = None) -> Recipe:
    """Validate the sections. With a `folder` an error also names the problems in the settings of parts."""
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        problems = problems_of(error, Recipe)
        if folder is not None and (rest := _without_unknown_keys(data, error)) is not None:
            import_plugins(rest.plugins)
            problems += validated_parts(rest, folder).problems
    raise_for(problems, source, overrides)
    raise AssertionError("pydantic rejected a recipe without naming a problem")


def _without_unknown_keys(data: dict[str, Any], error: ValidationError) -> Recipe | None:
    """Return the recipe without the keys that no section has; None if the recipe has other problems too."""
    known = copy.deepcopy(data)
    for problem in error.errors():
        if problem["type"] != "extra_forbidden":
            return None
        *sections, key = problem["loc"]
        table: Any = known
        for section in sections:
            table = table[section]
        del table[key]
    try:
        return Recipe.model_validate(known)
    except ValidationError:
        return None


def apply_override(data: dict[str, Any], override: str) -> None:
    """Apply one `section.key=value`; the value is read as TOML, as None if it is `null`, else as a plain string.

    A table is merged as by `extends`: it changes the settings that it names, and replaces a part of another name.
    """
    dotted, equals, text = override.partition("=")
    if not equals or not all(dotted.split(".")):
        raise ConfigError(
            f"--set {shortened(override)!r} is not of the form section.key=value",
            "for instance --set train.max_seconds=60; quote text with spaces: --set 'name=my run'",
        )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = None if text == "null" else text
    except RecursionError as error:
        raise ConfigError(f"--set {dotted}: the value is nested too deeply", "give a value or a list") from error
    keys = dotted.split(".")
    _fill_in_default_list(data, Recipe, keys)
    _set(data, keys, value, override)


def _fill_in_default_list(data: dict[str, Any], model: Any, keys: list[str]) -> None:
    """Write the default of a list of parts if the file omits the list and an override changes a part in it."""
    key, *rest = keys
    info = model.model_fields.get(key)
    if not rest or info is None:
        return
    if isinstance(info.default, list) and rest[0] in [part.name for part in info.default if isinstance(part, Choice)]:
        data.setdefault(key, [part.model_dump(mode="json") for part in info.default])
    elif isinstance(data.get(key, {}), dict) and hasattr(info.annotation, "model_fields"):
        _fill_in_default_list(data.setdefault(key, {}), info.annotation, rest)


def _set(node: Any, keys: list[str], value: Any, override: str) -> None:
    """Set a value in nested tables, and merge a table into one that is there. In a list of parts, a key is the name of
    a part; a part that is written as a name becomes a table."""
    key, *rest = keys
    if isinstance(node, list):
        parts = [_table(part) for part in node]
        chosen = [part for part in parts if isinstance(part, dict) and part.get("name") == key]
        if not chosen or not rest:
            raise ConfigError(
                f"--set {shortened(override)!r}: the list has no part {key!r}", "add it to the list first"
            )
        node[:] = parts
        _set(chosen[0], rest, value, override)
    elif not rest:
        node |= merged(node, {key: value})
    else:
        below = node[key] = _table(node.get(key, {}))
        if not isinstance(below, dict | list):
            dotted = override.partition("=")[0].split(".")
            path = ".".join(dotted[: len(dotted) - len(rest)])
            raise ConfigError(
                f"--set {shortened(override)!r}: {path!r} is a value, not a section", f"set it with --set {path}=VALUE"
            )
        names_itself = isinstance(below, dict) and below.get("name") == rest[0] and len(rest) > 1
        _set(below, rest[1:] if names_itself else rest, value, override)


def _table(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def changed_settings(old: Recipe, new: Recipe) -> list[str]:
    """Return the dotted names whose values differ."""
    before, after = flatten(old.model_dump()), flatten(new.model_dump())
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def refuse_changes(old: Recipe, new: Recipe) -> None:
    """Raise `ConfigError` if a setting changed that is fixed at resume."""
    allowed = tuple(RESUMABLE_SETTINGS)
    fixed = [k for k in changed_settings(old, new) if not any(k == a or k.startswith(a + ".") for a in allowed)]
    if fixed:
        raise ConfigError(
            f"cannot change {', '.join(fixed)} at resume", f"start a new run, or change only: {', '.join(allowed)}"
        )


def to_toml(recipe: Recipe) -> str:
    """Return the resolved recipe as TOML; `load_recipe` reads it back unchanged."""
    data = recipe.model_dump(exclude_none=True)
    return "\n".join(toml_lines({key: value for key, value in data.items() if value != {}})) + "\n"


def flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested sections as one dict of dotted names. A list of parts becomes the list of their names, and the
    settings of a part have its name as a prefix."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
            flat[prefix + key] = [part["name"] for part in value]
            own = {part["name"]: {name: one for name, one in part.items() if name != "name"} for part in value}
            flat |= flatten(own, f"{prefix}{key}.")
        elif isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def toml_lines(data: dict[str, Any], section: str = "") -> list[str]:
    """Return the lines of the section's own values, then of its sub-sections, in the order that TOML requires."""
    lines = [f"{toml_key(key)} = {toml_value(value)}" for key, value in data.items() if not isinstance(value, dict)]
    for key, values in data.items():
        if isinstance(values, dict):
            name = section + toml_key(key)
            lines += ["", f"[{name}]", *toml_lines(values, f"{name}.")]
    return lines
