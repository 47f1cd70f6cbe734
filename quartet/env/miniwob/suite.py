"""Named suites of task families, which are used for both training and evaluation: the tables of `suites.toml`.

Held-out episodes differ from training episodes in their seed (`evaluation.first_seed` of the recipe). Undemonstrated
families differ in kind as well: the initial policy was not trained on any demonstration of these families.
"""

import tomllib
from importlib.resources import files
from typing import Literal

import msgspec
from msgspec import Struct

from quartet.registry import lookup


class Family(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tasks of the same page, which differ only in their seed."""

    name: str
    demonstrated: bool = True
    """True if the initial policy may be trained on demonstrations of the family."""
    min_actions: int
    """Minimum number of actions for the easiest seed."""
    max_turns: int
    """Number of actions for the hardest seed, with a margin for mistakes."""
    success_reward: float = 1.0
    """Lowest raw reward that is a success. It is below 1 where the page grades a place by its distance: even the best
    click on a whole pixel seldom gets exactly 1. A reward of 0.7 allows 30 % of the distance at which the page accepts
    a place: 9 pixels for a midpoint, 7 to 12 for the centre of a circle, and 15 % of an angle that is bisected."""
    sees: Literal["text", "picture"] = "text"
    """The part of an observation that shows the task: the goal and the lines of elements, or only the picture."""


_TABLES = tomllib.loads((files("quartet.env.miniwob") / "suites.toml").read_text(encoding="utf-8"))
UNSUPPORTED: dict[str, str] = _TABLES.pop("unsupported")
"""Pages of the package `miniwob` that are in no suite, with the reason."""
SUITES: dict[str, tuple[Family, ...]] = {
    suite: tuple(msgspec.convert({"name": name, **fields}, Family) for name, fields in table.items())
    for suite, table in _TABLES.items()
}


def suite_of(name: str) -> tuple[Family, ...]:
    """Return the families of a suite. Raise `ConfigError` with the nearest name."""
    return lookup("suite", name, SUITES)


def family(suite: str, name: str) -> Family:
    """Return one family of a suite. Raise `ConfigError` with the nearest name."""
    return lookup("task family", name, {family.name: family for family in suite_of(suite)})
