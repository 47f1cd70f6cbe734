"""Parts that a recipe chooses: import them, validate their own settings, and fill in defaults."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from quartet.config import Choice, Recipe, Section
from quartet.errors import ConfigError
from quartet.part import Part
from quartet.recipe.errors import Problem, problems_of, unknown_part_key
from quartet.recipe.paths import changed, placed
from quartet.registry import find


def choices(section: Section, prefix: str = "") -> Iterator[tuple[str, Choice]]:
    """Yield (dotted name, choice) of every part of a recipe. In a list, the dotted name ends with the part's name."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Choice):
            yield prefix + name, value
        elif isinstance(value, Section):
            yield from choices(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield from ((f"{prefix}{name}.{one.name}", one) for one in value if isinstance(one, Choice))


class ValidatedParts(NamedTuple):
    """Parts of a recipe, whose settings have been validated separately from the rest of the recipe."""

    problems: list[Problem]
    complete: dict[int, Choice]
    """Choices with all settings filled in, by the `id` of the choice in the recipe."""
    chosen: list[tuple[str, type[Part], Section]]
    """(dotted name, part, settings)."""


def with_parts(recipe: Recipe, folder: Path, overridden: Collection[str] = ()) -> tuple[Recipe, list[Problem]]:
    """Return the recipe with the settings of all its parts validated and complete, and the problems found.

    Relative paths in these settings are relative to `folder`, but for the dotted names of `overridden`: those of a
    command line are relative to the current folder.
    """
    problems, complete, chosen = validated_parts(recipe, folder, overridden)
    if problems:
        return recipe, problems
    recipe = _replaced(recipe, complete)
    for dotted, part, settings in chosen:
        try:
            part.check(settings, recipe)
        except ConfigError as error:
            problems.append(_problem(dotted, error))
    return recipe, problems


def validated_parts(recipe: Recipe, folder: Path, overridden: Collection[str] = ()) -> ValidatedParts:
    """Find the parts and validate their settings, without comparing them with the rest of the recipe."""
    found = ValidatedParts([], {}, [])
    _validate(recipe, "", Places(folder, frozenset(overridden)), found)
    return found


class Places(NamedTuple):
    """Folder of a recipe, against which its paths are resolved, and the dotted names of a command line."""

    folder: Path
    overridden: frozenset[str]


def _validate(section: Section, prefix: str, places: Places, found: ValidatedParts) -> None:
    """Add the parts that a section chooses to `found`, after the parts that their own settings choose."""
    problems, complete, chosen = found
    for dotted, choice in choices(section, prefix):
        try:
            part = find(choice.kind, choice.name)
        except ConfigError as error:
            problems.append(_problem(dotted, error))
            continue
        try:
            settings = part.Settings.model_validate(_placed(choice.settings, part.Settings, dotted, places))
        except ValidationError as error:
            problems += problems_of(error, part.Settings, dotted, unknown=unknown_part_key(choice, dotted))
        else:
            before = len(problems)
            _validate(settings, f"{dotted}.", places, found)
            if len(problems) > before:
                continue
            settings = _replaced(settings, complete)
            chosen.append((dotted, part, settings))
            complete[id(choice)] = choice.with_settings(settings.model_dump(mode="json"))


def _problem(dotted: str, error: ConfigError) -> Problem:
    advice = f" -> {error.advice}" if error.advice else ""
    return Problem(dotted, f"{dotted}: {error.what}{advice}")


def _placed(settings: dict[str, Any], model: type[Section], dotted: str, places: Places) -> dict[str, Any]:
    """Resolve relative paths in a part's own settings against the recipe's folder."""
    fields = model.model_fields
    return {
        key: changed(value, fields[key], lambda text, marks: placed(text, places.folder, marks))
        if key in fields and f"{dotted}.{key}" not in places.overridden
        else value
        for key, value in settings.items()
    }


def _replaced(section: Any, complete: dict[int, Choice]) -> Any:
    """Return the section with its choices replaced; `complete` maps the `id` of each old choice to the new one."""
    update: dict[str, Any] = {}
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Choice):
            update[name] = complete[id(value)]
        elif isinstance(value, Section):
            update[name] = _replaced(value, complete)
        elif isinstance(value, list) and value and isinstance(value[0], Choice):
            update[name] = [complete[id(one)] for one in value]
    replaced = section.model_copy(update=update)
    replaced.model_fields_set.intersection_update(section.model_fields_set)  # a default stays a default
    return replaced
