"""Booleans where a setting has a numeric type: pydantic reads `true` as the number 1."""

from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin


def is_boolean_number(value: Any, annotation: Any) -> bool:
    """Return whether `value` is a boolean, or a list or table with one, where the type `annotation` has a number."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return is_boolean_number(value, inner[0])
    if origin in (Union, UnionType):
        found = [is_boolean_number(value, option) for option in inner if option is not NoneType]
        return any(found) and not {bool, Any, object} & set(inner)
    if isinstance(value, bool):
        return annotation in (int, float)
    if isinstance(value, dict) and origin is dict:
        return any(is_boolean_number(one, inner[1]) for one in value.values())
    if isinstance(value, list | tuple) and inner:
        return any(is_boolean_number(one, option) for one in value for option in inner if option is not ...)
    return False
