"""The base of every part: one published method, or one of our own, in one file."""

from abc import ABC
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from quartet.config.section import Section

if TYPE_CHECKING:
    from quartet.config import Recipe


class NoSettings(Section):
    """No settings of its own."""


class Part(ABC):
    """A method behind one of the interfaces of `quartet.registry.KINDS`.

    The file brings everything that belongs to the method: its class, its settings, its metrics and its source. The
    registry passes the validated settings as the first argument of the constructor; the kind's base says what follows.
    """

    Knobs: ClassVar[type[Section]] = NoSettings
    """The type of its settings. A part with settings defines the class in its place."""
    knobs: Any
    """The settings, validated. A part with settings narrows the type: `knobs: Knobs`."""
    metrics: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """What it records: `area/thing_unit` -> "unit: meaning", for instance `"nats: mean surprise of trained tokens"`."""
    source: ClassVar[str] = ""
    """Where the method is published: paper and equation, or released code. Empty for our own."""

    def __init__(self, knobs: Any) -> None:
        self.knobs = knobs

    @classmethod  # noqa: B027  (most parts have nothing to refuse)
    def check(cls, knobs: Any, recipe: "Recipe") -> None:
        """Raise `ConfigError` when these settings contradict the rest of the recipe."""
