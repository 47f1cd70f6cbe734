"""Descriptions of parts for people, read from the classes: purpose, source and settings."""

import inspect
from typing import Any

from msgspec import Struct, to_builtins

from quartet.config import Section
from quartet.part import Part
from quartet.registry import all_parts, find, names


class Setting(Struct, frozen=True, kw_only=True):
    name: str
    default: Any
    """Default value; None if a recipe must set the setting."""
    meaning: str


class PartDescription(Struct, frozen=True, kw_only=True):
    kind: str
    name: str
    summary: str
    """First paragraph of the class's docstring."""
    source: str
    """Paper or released code; empty for Quartet's own methods."""
    path: str
    """`module:Class`."""
    settings: list[Setting]
    metrics: dict[str, str]
    """Name -> "unit: meaning"."""

    def to_dict(self) -> dict[str, Any]:
        return to_builtins(self)


def describe_parts(kind: str) -> list[PartDescription]:
    """Import and describe every part of a kind, by name. Raise `ConfigError` for an unknown kind."""
    return [_described(kind, name, find(kind, name)) for name in names(kind)]


def describe_all_parts() -> list[PartDescription]:
    """Import and describe every part that can be imported, kind by kind."""
    return [_described(kind, name, part) for kind, name, part in all_parts()]


def settings_of(model: type[Section]) -> list[Setting]:
    """Return the settings of a part's `Settings`."""
    return [
        Setting(
            name=name,
            default=None if info.is_required() else info.get_default(),
            meaning=" ".join((info.description or "").split()),
        )
        for name, info in model.model_fields.items()
    ]


def _described(kind: str, name: str, part: type[Part]) -> PartDescription:
    documentation = inspect.cleandoc(part.__doc__ or "").partition("\n\n")[0]
    return PartDescription(
        kind=kind,
        name=name,
        summary=" ".join(documentation.split()),
        source=part.source,
        path=f"{part.__module__}:{part.__qualname__}",
        settings=settings_of(part.Settings),
        metrics=dict(part.metrics),
    )
