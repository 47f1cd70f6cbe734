"""Choice of a part by name in a recipe, with the part's own settings beside the name."""

from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, model_serializer, model_validator

from quartet.config.section import Section


class Choice(Section):
    """Name of a part, with the settings common to its kind, and in `settings` the part's own settings.

    In a recipe this is `sampler = "vade"`, `sampler = {name = "vade", exponent = 2}`, or a table `[control.sampler]`.
    The part's own settings are validated separately (`quartet.recipe.parts`), so a recipe can be read without importing
    parts.
    """

    model_config = ConfigDict(extra="allow")
    kind: ClassVar[str]
    """Kind of part, a key of `quartet.kinds.KINDS`."""
    name: str
    """Name of the part as listed by `quartet parts`, or `module:Class`."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_serializer(mode="wrap")
    def _own_settings_last(self, serialize: Any) -> dict[str, Any]:
        """Keep the order of a written recipe stable: the name, the shared settings, then the part's own settings sorted
        by name."""
        values = serialize(self)
        shared = {name: values[name] for name in type(self).model_fields if name in values}
        return shared | {name: value for name, value in sorted(values.items()) if name not in shared}

    @property
    def settings(self) -> dict[str, Any]:
        """The part's own settings, as given in the recipe."""
        return self.model_extra or {}

    def with_settings(self, settings: dict[str, Any]) -> Self:
        """Return the same choice with `settings` in place of the part's own settings."""
        shared = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate(shared | settings)


def _as_list(value: object) -> object:
    """Read a single part as a list of one."""
    return [value] if isinstance(value, str | dict) else value


C = TypeVar("C", bound=Choice)


def _named_once(parts: list[C]) -> list[C]:
    """Require unique names: overrides, errors and a resume refer to a part of a list by its name."""
    names = [part.name for part in parts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{', '.join(twice)} appears twice -> list each part once")
    return parts


SeveralOf = Annotated[list[C], BeforeValidator(_as_list), AfterValidator(_named_once)]
"""One part or a list of parts with different names."""
