"""Paths in recipes: relative to the folder of a recipe's file, or to the current folder."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from quartet.config import Choice, PathMark, PolicyMark, Recipe
from quartet.config.section import named_tables
from quartet.errors import ConfigError
from quartet.registry import find
from quartet.shipped import named_policies

Change = Callable[[str, Sequence[Any]], str]
"""Function from a setting's text, and the marks of the setting, to another text."""


def place_paths(data: dict[str, Any], folder: Path) -> None:
    """Resolve relative paths against the folder of the recipe's file."""
    _change_paths(data, Recipe, lambda value, marks: placed(value, folder, marks))


def place_paths_of_parts(data: dict[str, Any], folder: Path) -> None:
    """Resolve relative paths in the settings of the parts that a file names, for recipes elsewhere that extend it."""
    _change_paths_of_parts(data, Recipe, lambda value, marks: placed(value, folder, marks))


def move_paths(data: dict[str, Any], folder: Path) -> None:
    """Change paths that begin at the current folder to those of a recipe in `folder`: relative to it if they are inside
    it, else absolute. Parts of plugins must be imported."""

    def moved(value: str, marks: Sequence[Any]) -> str:
        path = placed(value, Path.cwd(), marks)
        moves = marks_path(marks) and Path(path).is_absolute()  # an empty setting and the name of a policy stay
        return path_within(Path(path), folder) if moves else value

    _change_paths(data, Recipe, moved)
    _change_paths_of_parts(data, Recipe, moved)


def path_within(path: Path, folder: Path) -> str:
    """Return a path as a recipe in `folder` has it: relative if it is inside the folder, else absolute."""
    path, folder = path.resolve(), folder.resolve()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _change_paths(data: dict[str, Any], model: Any, change: Change) -> None:
    """Change every text of the sections, also in lists, to the result of `change` for it and its setting's marks."""
    for name, info in model.model_fields.items():
        value = data.get(name)
        if isinstance(value, dict) and (table := named_tables(info)):
            for one in value.values():
                _change_paths(one if isinstance(one, dict) else {}, table, change)
        elif isinstance(value, dict) and hasattr(info.annotation, "model_fields"):
            _change_paths(value, info.annotation, change)
        elif name in data:
            data[name] = changed(value, info, change)


def _change_paths_of_parts(data: dict[str, Any], model: Any, change: Change) -> None:
    """Do the same in the settings of parts. Leave out parts in lists, and those of plugins that are not imported."""
    for name, info in model.model_fields.items():
        value, below = data.get(name), info.annotation
        if not isinstance(value, dict) or not hasattr(below, "model_fields"):
            continue
        _change_paths_of_parts(value, below, change)
        if issubclass(below, Choice) and isinstance(value.get("name"), str):
            with suppress(ConfigError):
                _change_paths(value, find(below.kind, value["name"]).Settings, change)


def changed(value: Any, info: FieldInfo, change: Change) -> Any:
    """Return a setting's value with its text, or the texts of its list, changed by `change`."""
    if isinstance(value, str):
        return change(value, info.metadata)
    if not isinstance(value, list):
        return value
    marks = getattr(next(iter(get_args(info.annotation)), None), "__metadata__", ())
    return [change(one, marks) if isinstance(one, str) else one for one in value]


def placed(value: str, folder: Path, marks: Sequence[Any]) -> str:
    """Return a setting's value, resolved against `folder` if its marks say that it is a path. The name of a shipped
    policy stays as it is."""
    if not value or not marks_path(marks):
        return value
    ships = any(isinstance(mark, PolicyMark) for mark in marks) and value in named_policies()
    return value if ships and not (folder / value).exists() else str(folder / value)


def marks_path(marks: Sequence[Any]) -> bool:
    """Return whether the marks of a setting say that it is a path."""
    return any(isinstance(mark, PathMark) for mark in marks)
