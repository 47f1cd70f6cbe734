"""Parser of goals: find the texts of an instruction that the expert has to click, type or choose."""

import re

from quartet.errors import ExpertError


def parts(pattern: str, goal: str) -> tuple[str, ...]:
    """Return the groups of `pattern`. Raise `ExpertError` if the pattern does not match the whole goal."""
    match = re.fullmatch(pattern, goal)
    if match is None:
        raise ExpertError(f"the goal {goal!r} is not of the form {pattern!r}")
    return match.groups()


def quoted(goal: str, count: int = 1) -> list[str]:
    """Return the texts in double quotes. Raise `ExpertError` unless there are exactly `count` of them.

    >>> quoted('Enter the username "bob" and the password "x1" into the text fields and press login.', 2)
    ['bob', 'x1']
    """
    texts = re.findall(r'"([^"]*)"', goal)
    if len(texts) != count:
        raise ExpertError(f"the goal {goal!r} holds {len(texts)} quoted texts, not {count}")
    return texts


def listed(pattern: str, goal: str) -> list[str]:
    """Return the comma-separated names in the one group of `pattern`; "nothing" is an empty list.

    >>> listed(r"Select (.*) and click Submit\\.", "Select ag9, x and click Submit.")
    ['ag9', 'x']
    """
    (names,) = parts(pattern, goal)
    return [] if names == "nothing" else names.split(", ")


def ordinal(text: str) -> int:
    """Return the index, from 0, of an ordinal number.

    >>> ordinal("3rd")
    2
    """
    (digits,) = parts(r"(\d+)(?:st|nd|rd|th)", text)
    return int(digits) - 1
