"""Template of a first recipe: a file with the settings of a first run, each below a comment with its meaning.

The comments are made from the docstrings of the settings.
"""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic.fields import FieldInfo

from quartet.config import Choice, Recipe, Section
from quartet.errors import ConfigError
from quartet.recipe.toml_text import toml_value
from quartet.registry import find, names

COLUMNS = 100
ESSENTIAL = (
    *("seed", "env.families", "env.sessions"),
    *("rollout.loop", "rollout.max_turns", "rollout.max_tokens", "rollout.temperature", "engine.max_context_tokens"),
    *("control.sampler", "control.rollouts_per_group", "control.horizon", "admission.max_lag"),
    *("train.groups_per_batch", "train.learning_rate", "train.max_train_steps", "train.max_seconds"),
    *("credit", "loss.terms", "evaluation.episodes_per_family", "evaluation.train_steps_per_evaluation"),
)
"""Settings shown for a first run, besides those without a default."""


def commented_recipe(chosen: dict[str, Any], *, reasons: Mapping[str, str], every_setting: bool = False) -> str:
    """Return TOML with the `chosen` values (nested like a recipe), and the defaults of the essential settings.

    `reasons` are sentences that follow the meaning of a setting, by dotted names. With `every_setting` all other
    settings follow, commented out.
    """
    lines = [
        "# Written by `quartet init`: the settings of a first run; check them with `quartet train FILE --dry-run`.",
        "# A relative path begins at the folder of this file.",
        "",
    ]
    lines += _section(Recipe, chosen, "", reasons, every_setting)
    return "\n".join(lines).rstrip() + "\n"


def _section(
    model: Any, chosen: dict[str, Any], prefix: str, reasons: Mapping[str, str], every_setting: bool
) -> Iterator[str]:
    """Yield the lines of plain settings first, then of sub-sections, in the order that TOML requires."""
    fields: dict[str, FieldInfo] = model.model_fields
    for name, info in fields.items():
        if not _is_table(info):
            yield from _setting(f"{prefix}{name}", info, chosen, reasons, every_setting)
    if issubclass(model, Choice):
        part = find(model.kind, chosen.get("name", fields["name"].default))
        for name, info in part.Settings.model_fields.items():
            yield from _setting(f"{prefix}{name}", info, chosen, reasons, every_setting)
    for name, info in fields.items():
        if not _is_table(info):
            continue
        below = chosen.get(name, {})
        below = {"name": below} if isinstance(below, str) else below  # the short form of a choice
        lines = list(_section(info.annotation, below, f"{prefix}{name}.", reasons, every_setting))
        if lines:
            yield from _comment((info.annotation.__doc__ or "").strip())
            yield from (f"[{prefix}{name}]", *lines)


def _setting(
    dotted: str, info: FieldInfo, chosen: dict[str, Any], reasons: Mapping[str, str], every_setting: bool
) -> Iterator[str]:
    name = dotted.rpartition(".")[2]
    if name in chosen and chosen[name] is None:
        raise ConfigError(f"{dotted} = null cannot be written into a recipe", f"give --set {dotted}=null to the run")
    if name in chosen:
        line = f"{name} = {toml_value(chosen[name])}"
    elif dotted in ESSENTIAL:
        line = f"{name} = {toml_value(_plain(info.default))}"
    elif every_setting:
        without = info.is_required() or info.default is None
        line = f"# {name} =" if without else f"# {name} = {toml_value(_plain(info.default))}"
    else:
        return
    reason = f" {reasons[dotted]}" if dotted in reasons else ""
    yield from (*_comment(f"{info.description or ''}{_parts_hint(info)}{reason}"), line, "")


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(" ".join(text.split()), COLUMNS)]


def _parts_hint(info: FieldInfo) -> str:
    """Return a sentence that lists the names a field may have if it chooses a part; empty for any other field."""
    model = next(iter(get_args(info.annotation)), info.annotation)
    if not (isinstance(model, type) and issubclass(model, Choice)):
        return ""
    return f" One of {', '.join(names(model.kind))}: `quartet parts {model.kind}` explains them."


def _is_table(info: FieldInfo) -> bool:
    """Return whether a field is written as a table: a section, except a part that is chosen by its name alone."""
    model = info.annotation
    if not (isinstance(model, type) and issubclass(model, Section)):
        return False
    return not issubclass(model, Choice) or len(model.model_fields) > 1


def _plain(value: Any) -> Any:
    """Return a value in the form of a recipe: a part without settings is written as its name."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.name if isinstance(value, Choice) and not value.settings else value
