"""The page of all knobs, from the types, defaults and docstrings of `quartet.config`."""

from typing import Any

import annotated_types
from pydantic.fields import FieldInfo

from quartet.config import RESUMABLE_KNOBS, Recipe

HEAD = """\
# Knobs

A recipe is a TOML file with one section per part of a run. These are all its knobs, made from
[`quartet/config/`](../../quartet/config). A knob without a default must be set. On the command line a knob is set by
`--set section.knob=value`; a misspelt one is refused with the nearest name.

What may change when a run is resumed: {resumable}. A whole section stands for all of its knobs.
"""
BOUNDS = {annotated_types.Ge: "≥", annotated_types.Gt: ">", annotated_types.Le: "≤", annotated_types.Lt: "<"}


def knobs_page() -> str:
    """The page in Markdown: a heading per section, a table row with an anchor per knob."""
    resumable = ", ".join(f"[`{name}`](#{name})" for name in RESUMABLE_KNOBS)
    return "\n".join([HEAD.format(resumable=resumable), *_section(Recipe, "")])


def _section(model: Any, name: str) -> list[str]:
    """The section's own knobs, then its sub-sections."""
    lines = [f"## `[{name}]` {{#{name} }}", "", _flat(model.__doc__), ""] if name else ["## The run itself", ""]
    prefix = f"{name}." if name else ""
    knobs = {key: info for key, info in model.model_fields.items() if not _is_section(info)}
    if knobs:
        lines += ["| knob | default | meaning |", "|---|---|---|"]
        lines += [_row(f"{prefix}{key}", key, info) for key, info in knobs.items()]
    lines.append("")
    for key, info in model.model_fields.items():
        if _is_section(info):
            lines += _section(info.annotation, f"{prefix}{key}")
    return lines


def _row(name: str, key: str, info: FieldInfo) -> str:
    default = "must be set" if info.is_required() else f"`{_toml(info.get_default())}`"
    bounds = _bounds(info)
    meaning = _flat(info.description or "").replace("|", "\\|")
    return f'| <span id="{name}"></span>`{key}` | {default} | {meaning}{f" *({bounds})*" if bounds else ""} |'


def _bounds(info: FieldInfo) -> str:
    """Like `≥ 0, ≤ 1`; nothing where any value of the type will do."""
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


def _is_section(info: FieldInfo) -> bool:
    return hasattr(info.annotation, "model_fields")


def _flat(text: str) -> str:
    return " ".join(text.split())
