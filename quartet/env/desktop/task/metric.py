"""Metrics: how well a result meets an expectation, from 0 to 1."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any


def equals(result: Any, expected: Any) -> bool:
    """Return whether the values are equal; lists must have the same order."""
    return result == expected


def differs(result: Any, expected: Any) -> bool:
    return result is not None and result != expected


def contains(result: Any, expected: Any) -> bool:
    """Return whether a text has this part, or a list this entry."""
    return result is not None and expected in result


def lacks(result: Any, expected: Any) -> bool:
    return result is not None and expected not in result


def any_contains(result: Any, expected: Any) -> bool:
    """Return whether an entry of a list has this part."""
    return any(expected in entry for entry in result or [])


def none_contains(result: Any, expected: Any) -> bool:
    return result is not None and not any_contains(result, expected)


def matches(result: Any, expected: Any) -> bool:
    """Return whether the whole text matches this regular expression."""
    return isinstance(result, str) and re.fullmatch(expected, result, re.DOTALL) is not None


def number(result: Any, expected: Any) -> bool:
    """Return whether a text is this number, with a relative tolerance of 1e-6."""
    try:
        return math.isclose(float(result), float(expected), rel_tol=1e-6, abs_tol=1e-9)
    except (TypeError, ValueError):
        return False


def same_lines(result: Any, expected: Any) -> float:
    """Return the share of the expected lines that are in their place; 0 if there are more lines."""
    if result is None:
        return 0.0
    lines, wanted = result.split("\n"), expected.split("\n")
    right = sum(line == other for line, other in zip(lines, wanted, strict=False))
    return right / len(wanted) if len(lines) <= len(wanted) else 0.0


METRICS: Mapping[str, Callable[[Any, Any], float]] = {
    function.__name__: function
    for function in (
        *(equals, differs, contains, lacks, any_contains, none_contains),
        *(matches, number, same_lines),
    )
}
"""All metrics by name."""
