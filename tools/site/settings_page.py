"""The page of all settings, from the types, defaults and docstrings of `quartet.config` and of the parts."""

from typing import Any, get_args

import annotated_types
from pydantic.fields import FieldInfo

from quartet.config import RESUMABLE_SETTINGS, Choice, Recipe, Section
from quartet.config.section import named_tables
from quartet.recipe.part_description import PartDescription, describe_parts

HEAD = """\
# Settings

A recipe is a TOML file with one section per part of a run. These are all its settings, made from
[`quartet/config/`](../../quartet/config) and from the parts that a recipe can choose. A setting without a default
must be set. On the command line it is set by `--set section.setting=value`; a misspelt one is refused with the nearest
name. A part's settings stand beside its name: `sampler = {{name = "vade", exponent = 2}}`, or `[control.sampler]`.

What may change when a run is resumed: {resumable}. A whole section stands for all of its settings.
"""
BOUNDS = {annotated_types.Ge: "≥", annotated_types.Gt: ">", annotated_types.Le: "≤", annotated_types.Lt: "<"}


def settings_page() -> str:
    """Return the page in Markdown: a heading per section, a table row with an anchor per setting."""
    resumable = ", ".join(f"[`{name}`](#{name})" for name in RESUMABLE_SETTINGS)
    seen: set[str] = set()
    return "\n".join([HEAD.format(resumable=resumable), *_section(Recipe, "", seen)])


def _section(model: Any, name: str, seen: set[str]) -> list[str]:
    """Return the section's own settings, the parts that it can choose, then its sub-sections."""
    lines = [f"## `[{name}]` {{#{name} }}", "", _flat(model.__doc__), ""] if name else ["## The run itself", ""]
    prefix = f"{name}." if name else ""
    settings = {key: info for key, info in model.model_fields.items() if _section_of(info) is None}
    if settings:
        lines += ["| setting | default | meaning |", "|---|---|---|"]
        lines += [_row(f"{prefix}{key}", key, info) for key, info in settings.items()]
    lines.append("")
    if issubclass(model, Choice):
        lines += [line for part in describe_parts(model.kind) for line in _part(part, name, seen)]
    for key, info in model.model_fields.items():
        if (inner := _section_of(info)) is not None:
            lines += _section(inner, f"{prefix}{key}", seen)
    return lines


def _part(part: PartDescription, section: str, seen: set[str]) -> list[str]:
    """Return the summary and settings of one part. A setting of several parts has one anchor, at the first part."""
    source = f" *Source: {part.source}.*" if part.source else ""
    lines = [f"**`{part.name}`**: {part.summary}{source}", ""]
    if part.settings:
        lines += ["| setting | default | meaning |", "|---|---|---|"]
    for setting in part.settings:
        anchor = f"{section}.{setting.name}"
        span = "" if anchor in seen else f'<span id="{anchor}"></span>'
        seen.add(anchor)
        meaning = setting.meaning.replace("|", "\\|")
        lines.append(f"| {span}`{setting.name}` | `{_toml(setting.default)}` | {meaning} |")
    return [*lines, ""]


def _row(name: str, key: str, info: FieldInfo) -> str:
    default = "must be set" if info.is_required() else f"`{_toml(info.get_default())}`"
    bounds = _bounds(info)
    meaning = _flat(info.description or "").replace("|", "\\|")
    return f'| <span id="{name}"></span>`{key}` | {default} | {meaning}{f" *({bounds})*" if bounds else ""} |'


def _bounds(info: FieldInfo) -> str:
    """Return the bounds of a setting, for example `≥ 0, ≤ 1`; empty if every value of the type is allowed."""
    found = [(sign, mark) for mark in info.metadata for kind, sign in BOUNDS.items() if isinstance(mark, kind)]
    return ", ".join(f"{sign} {getattr(mark, type(mark).__name__.lower())}" for sign, mark in found)


def _toml(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).replace("'", '"')


def _section_of(info: FieldInfo) -> type[Section] | None:
    """Return the section type of a field with one or several sections; None for a plain setting."""
    inner = named_tables(info) or next(iter(get_args(info.annotation)), info.annotation)
    return inner if isinstance(inner, type) and issubclass(inner, Section) else None


def _flat(text: str) -> str:
    return " ".join(text.split())
