"""Problems of a recipe as sentences that name the setting, the error, and the nearest existing name."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any, get_args

from msgspec import Struct
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from quartet.config import Choice, Recipe, Section
from quartet.config.section import named_tables
from quartet.errors import ConfigError, nearest, shortened
from quartet.kinds import KINDS
from quartet.recipe.familiar import FAMILIAR
from quartet.recipe.upgrade import CONFIG_VERSION, MOVED
from quartet.registry import find, names

MOST_PROBLEMS = 10
"""Maximum number of problems in one error, so that it fits one screen."""

_PLAIN = {
    "Input should be": "must be",
    "a valid dictionary": "a table of settings",
    "a valid integer, unable to parse string as an integer": "a whole number",
    "a valid integer, got a number with a fractional part": "a whole number",
    "a valid number, unable to parse string as a number": "a number",
    "a valid boolean, unable to interpret input": "true or false",
    "a valid boolean": "true or false",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "text between quotes",
    "a valid list": "a list, in brackets",
}
"""Phrases of pydantic -> phrases for authors of TOML."""


class Problem(Struct, frozen=True):
    place: str
    """Dotted name of the setting; empty for a contradiction between settings."""
    text: str
    """Sentence, followed by ` -> ` and the advice."""


def problems_of(
    error: ValidationError, model: type[Section], prefix: str = "", unknown: Callable[[str], str] | None = None
) -> list[Problem]:
    """Return the problems that pydantic found; `prefix` is the dotted name of the section `model` in the recipe.

    `unknown` returns the text for a key that `model` does not have; by default the text suggests the nearest key.
    """
    found: list[Problem] = []
    for problem in error.errors():
        place = ".".join([prefix] * bool(prefix) + [str(part) for part in problem["loc"]])
        if problem["type"] == "extra_forbidden":
            text = unknown(str(problem["loc"][-1])) if unknown else _unknown_key(model, problem["loc"], place)
        elif problem["type"] == "missing" and isinstance(problem["loc"][-2:][0], int):
            place = place.rsplit(".", 2)[0]  # without the part's number and the missing key
            text = f"{place}: {_nameless(model, problem['loc'], problem['input'])}"
        elif problem["type"] == "missing":
            text = f"{place} is missing -> add it to the recipe or with --set; docs/recipes.md shows a whole recipe"
        elif place == "config_version" and isinstance(problem["input"], int) and problem["input"] > CONFIG_VERSION:
            newer = f"config_version = {problem['input']} belongs to a newer Quartet"
            text = f"{newer} -> install that version, or rewrite the recipe as version {CONFIG_VERSION}"
        else:
            text = _wrong_value(problem, place)
        found.append(Problem(place, text))
    return found


def _wrong_value(problem: ErrorDetails, place: str) -> str:
    """Return the error of the value at `place` in plain words, with the value if pydantic's message omits it."""
    message = problem["msg"].removeprefix("Value error, ").partition(" or instance of ")[0]
    if message == problem["msg"] and not isinstance(problem["input"], dict | list):
        place = f"{place} = {shortened(repr(problem['input']))}"
    for terse, plain in _PLAIN.items():
        message = message.replace(terse, plain)
    return f"{place}: {message}" if place else message


def raise_for(problems: list[Problem], source: str, overrides: list[str]) -> None:
    """Raise one `ConfigError` for all problems. Each problem begins with the override that set the key, or else with
    `source`."""
    if not problems:
        return
    given = {override.partition("=")[0]: f"--set {override}" for override in overrides}
    lines = [f"{shortened(_culprit(problem, given) or source)}: {problem.text}" for problem in problems]
    if len(lines) == 1:
        what, _, advice = lines[0].partition(" -> ")
        raise ConfigError(what, advice)
    more = [f"and {len(lines) - MOST_PROBLEMS} more"] if len(lines) > MOST_PROBLEMS else []
    raise ConfigError("\n       ".join([*lines[:MOST_PROBLEMS], *more]))


def unknown_part_key(choice: Choice, dotted: str) -> Callable[[str], str]:
    """Return a function that returns the text for a key that the chosen part does not have."""

    def explain(key: str) -> str:
        part = find(choice.kind, choice.name)
        place = f"{dotted}.{key}"
        if moved := MOVED.get(place):
            return _moved(place, moved)
        others = [name for name in names(choice.kind) if key in find(choice.kind, name).Settings.model_fields]
        if others:
            which = " or ".join(map(repr, others))
            return f"{place!r} is a setting of the {choice.kind} {which}, and {choice.name!r} is chosen"
        known = [f"{dotted}.{name}" for name in [*type(choice).model_fields, *part.Settings.model_fields]][1:]
        hint = nearest(place, known) if known else f"The {choice.kind} {choice.name!r} has no settings of its own."
        return f"unknown key {place!r}. {hint}"

    return explain


def _moved(place: str, today: str) -> str:
    return (
        f"unknown key {place!r}: it is now {today!r}, and settings of a part are beside its name -> see docs/recipes.md"
    )


def _unknown_key(model: Any, location: tuple[Any, ...], place: str) -> str:
    if moved := MOVED.get(place):
        return _moved(place, moved)
    parts = iter(location[:-1])
    for part in parts:
        info = model.model_fields[part]
        model = named_tables(info) or info.annotation
        if named_tables(info):
            next(parts)  # the name of one of its tables
    name, section = str(location[-1]), place.rpartition(".")[0]
    if name in FAMILIAR:
        return f"unknown key {shortened(place)!r} -> here it is called {FAMILIAR[name]}"
    if not get_close_matches(name, model.model_fields, n=1, cutoff=0.75) and name != "name":
        elsewhere = [key for key in _all_keys(Recipe) if key.endswith(f".{name}")] or _keys_of_parts(name)
        if elsewhere:
            return f"unknown key {shortened(place)!r}. Did you mean {' or '.join(map(repr, elsewhere))}?"
    here = [f"{section}.{key}" if section else key for key in model.model_fields]
    return f"unknown key {shortened(place)!r}. {nearest(place, here)}"


def _nameless(model: Any, location: tuple[Any, ...], given: Any) -> str:
    """Return the error for a part of a list that has no name."""
    for part in location[:-2]:
        model = model.model_fields[part].annotation
    kind: str = get_args(model)[0].kind
    meant = [name for name in names(kind) if name in given]
    if meant:
        return f"no part of the list is named {meant[0]!r} -> choose it first: {location[-3]} = {meant!r}"
    return f"a part of the list has no name -> give it one, for instance name = {names(kind)[0]!r}"


def _all_keys(model: Any, prefix: str = "") -> Iterator[str]:
    """Yield every setting of a recipe as a dotted name, except those of parts."""
    for name, info in model.model_fields.items():
        if section := named_tables(info):
            yield from _all_keys(section, f"{prefix}{name}.NAME.")
        elif hasattr(info.annotation, "model_fields"):
            yield from _all_keys(info.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name


def _keys_of_parts(name: str) -> list[str]:
    """Return the dotted names of all settings called `name` that belong to parts which a recipe can choose."""
    places = {kind: place for place, kind in _choice_fields(Recipe)}
    return sorted(
        {
            places[kind].format(part=part) + f".{name}"
            for kind in KINDS.keys() & places.keys()
            for part in names(kind)
            if name in find(kind, part).Settings.model_fields
        }
    )


def _choice_fields(model: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (place, kind) of every choice; the place of a part in a list ends with `{part}` for its name."""
    for name, info in model.model_fields.items():
        several, chosen = get_args(info.annotation), info.annotation
        chosen = several[0] if several else chosen
        if isinstance(chosen, type) and issubclass(chosen, Choice):
            yield f"{prefix}{name}.{{part}}" if several else prefix + name, chosen.kind
        elif hasattr(info.annotation, "model_fields"):
            yield from _choice_fields(info.annotation, f"{prefix}{name}.")


def _culprit(problem: Problem, given: dict[str, str]) -> str | None:
    """Return the override that most likely caused the problem, or None.

    A problem at a place was caused by an override of that place. A contradiction between settings has no place, but its
    text names the settings.
    """
    place, text = problem.place, problem.text
    near = [key for key in given if (_within(key, place) or _within(place, key) if place else f"{key} " in text)]
    return given[max(near, key=len)] if near else None


def _within(key: str, place: str) -> bool:
    """Return whether `key` is `place` or a setting within it, in dotted names."""
    return key == place or key.startswith(f"{place}.")
