"""Reading the goal: the parts of an instruction that say what to click, type or choose."""

import re

from quartet.env.miniwob.experts.page import ExpertError


def parts(pattern: str, goal: str) -> tuple[str, ...]:
    """The groups of `pattern`, which must match the whole goal. Raises `ExpertError` when it does not."""
    match = re.fullmatch(pattern, goal)
    if match is None:
        raise ExpertError(f"the goal {goal!r} is not of the form {pattern!r}")
    return match.groups()


def quoted(goal: str, count: int = 1) -> list[str]:
    """Everything that stands in double quotes. Raises `ExpertError` unless it is `count` texts.

    >>> quoted('Enter the username "bob" and the password "x1" into the text fields and press login.', 2)
    ['bob', 'x1']
    """
    texts = re.findall(r'"([^"]*)"', goal)
    if len(texts) != count:
        raise ExpertError(f"the goal {goal!r} holds {len(texts)} quoted texts, not {count}")
    return texts


def listed(pattern: str, goal: str) -> list[str]:
    """The names of the comma-separated list that is the one group of `pattern`; "nothing" is an empty list.

    >>> listed(r"Select (.*) and click Submit\\.", "Select ag9, x and click Submit.")
    ['ag9', 'x']
    """
    (names,) = parts(pattern, goal)
    return [] if names == "nothing" else names.split(", ")


def ordinal(text: str) -> int:
    """Index from 0 of an ordinal number.

    >>> ordinal("3rd")
    2
    """
    (digits,) = parts(r"(\d+)(?:st|nd|rd|th)", text)
    return int(digits) - 1
