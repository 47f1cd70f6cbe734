"""Attribution of a result to the parts that were used, by Shapley values (CapaBench).

A coalition is a set of parts. The Shapley value of part i is what i adds to the parts before it, in the mean over all
orders of the n parts: the sum over S without i of |S|! (n - |S| - 1)! / n! (v(S with i) - v(S)).
"""

from collections.abc import Mapping, Sequence
from itertools import chain, combinations
from math import factorial

Coalition = frozenset[str]


def coalitions(parts: Sequence[str]) -> list[Coalition]:
    """Return all sets of parts, the empty one first."""
    sizes = range(len(parts) + 1)
    return [frozenset(some) for some in chain.from_iterable(combinations(parts, size) for size in sizes)]


def shapley(parts: Sequence[str], value: Mapping[Coalition, float]) -> dict[str, float]:
    """Return the Shapley value of each part; their sum is the value of all parts minus that of none."""
    n = len(parts)
    return {
        part: sum(
            factorial(len(some)) * factorial(n - len(some) - 1) / factorial(n) * (value[some | {part}] - value[some])
            for some in coalitions(parts)
            if part not in some
        )
        for part in parts
    }
