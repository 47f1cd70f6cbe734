"""Equality of the answers of reference and port: exact, or with a tolerance for numbers such as those of a port in
float32."""

import math
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\bnan\b")
"""A number in a text, as Python and numpy write it."""


def equal(one: Any, other: Any, tolerance: float) -> bool:
    """Return whether two values are equal. NaN equals NaN.

    Numbers may differ by `tolerance`, absolutely or relative to the larger one; with a tolerance above 0 this holds for
    the numbers in texts, too.

    >>> equal("at 0.5 m", "at 0.500001 m", 1e-3), equal([1.0, float("nan")], [1.0, float("nan")], 0.0)
    (True, True)
    """
    match one, other:
        case (int() | float(), int() | float()):
            both_nan = one != one and other != other
            near = tolerance > 0 and math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
            return one == other or both_nan or near
        case str(), str():
            return one == other or (tolerance > 0 and _equal_texts(one, other, tolerance))
        case Struct(), Struct():
            return type(one) is type(other) and equal(asdict(one), asdict(other), tolerance)
        case Mapping(), Mapping():
            return one.keys() == other.keys() and all(equal(one[key], other[key], tolerance) for key in one)
        case list() | tuple(), list() | tuple():
            pairs = zip(one, other, strict=False)
            return len(one) == len(other) and all(equal(first, second, tolerance) for first, second in pairs)
    return bool(one == other)


def _equal_texts(one: str, other: str, tolerance: float) -> bool:
    """Return whether two texts differ in numbers alone, and these by no more than the tolerance."""
    if _NUMBER.sub("0", one) != _NUMBER.sub("0", other):
        return False
    first, second = ([float(number) for number in _NUMBER.findall(text)] for text in (one, other))
    return equal(first, second, tolerance)
