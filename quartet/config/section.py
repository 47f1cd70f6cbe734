"""What the sections of a recipe are made of."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Positive = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


def _as_list(value: object) -> object:
    """One name stands for a list of one."""
    return [value] if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(_as_list)]
"""One name or several."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
