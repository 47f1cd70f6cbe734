"""Lookup by name with a helpful error. A registry is a plain dict."""

from collections.abc import Mapping
from typing import TypeVar

from quartet.errors import ConfigError, nearest

T = TypeVar("T")


def lookup(kind: str, name: str, registry: Mapping[str, T]) -> T:
    """Return `registry[name]`, or raise `ConfigError` that suggests the nearest name."""
    if name not in registry:
        raise ConfigError(f"unknown {kind} {name!r}", nearest(name, registry))
    return registry[name]
