"""Rounding of numbers that are computed with floating-point error."""

from math import ceil

_ERROR = 1e-9
"""Subtracted before rounding up, since a result that is a whole number may be computed slightly too large."""


def rounded_up(value: float) -> int:
    """Return the least integer that is not below `value`, apart from its floating-point error: 0.28 * 25 gives 7."""
    return ceil(value - _ERROR)
