"""Base class of all parts. A part is one method, published or Quartet's own, in one file."""

from abc import ABC
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from quartet.config.section import Section
from quartet.errors import ConfigError

if TYPE_CHECKING:
    from quartet.config import Recipe


class NoSettings(Section):
    """The settings of a part without settings."""


class Part(ABC):
    """A method with one of the interfaces of `quartet.kinds.KINDS`.

    One file contains everything that belongs to the method: its class, settings, metrics and source. The registry
    passes the validated settings as the first argument of the constructor; the base class of the kind defines the other
    arguments.
    """

    Settings: ClassVar[type[Section]] = NoSettings
    """Type of the part's settings. A part with settings overrides it with a nested class."""
    settings: Any
    """The validated settings. A part with settings narrows the type: `settings: Settings`."""
    metrics: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Recorded metrics: `area/thing_unit` -> "unit: meaning", for example `"nats: mean surprise of trained tokens"`."""
    source: ClassVar[str] = ""
    """Publication of the method: paper and equation, or released code. Empty for Quartet's own methods."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "Knobs" in vars(cls):
            what = f"{cls.__module__}.{cls.__qualname__} declares `Knobs`: the settings of a part are now `Settings`"
            raise ConfigError(what, "rename `Knobs` to `Settings` and `knobs` to `settings` in its file")

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @classmethod  # noqa: B027  (most parts have nothing to check)
    def check(cls, settings: Any, recipe: "Recipe") -> None:
        """Raise `ConfigError` if these settings contradict the rest of the recipe."""
