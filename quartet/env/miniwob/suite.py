"""Named suites of task families, which are used for both training and evaluation.

Held-out episodes differ from training episodes in their seed (`evaluation.first_seed` of the recipe). Undemonstrated
families differ in kind as well: the initial policy was not trained on any demonstration of these families.
"""

from msgspec import Struct

from quartet.registry import lookup


class Family(Struct, frozen=True, kw_only=True):
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
    click on a whole pixel seldom gets exactly 1."""


def _family(name: str, min_actions: int, max_turns: int) -> Family:
    return Family(name=name, min_actions=min_actions, max_turns=max_turns)


def _undemonstrated(name: str, min_actions: int, max_turns: int) -> Family:
    return Family(name=name, demonstrated=False, min_actions=min_actions, max_turns=max_turns)


GRADED = 0.7
"""Lowest raw reward of a success on pages that grade a place. It allows 30 % of the distance at which the page accepts
a place: 9 pixels for a midpoint, 7 to 12 for the centre of a circle, and 15 % of an angle that is bisected."""


def _graded(name: str, min_actions: int, max_turns: int) -> Family:
    return Family(name=name, min_actions=min_actions, max_turns=max_turns, success_reward=GRADED)


SUITES: dict[str, tuple[Family, ...]] = {
    "miniwob-24": (
        _family("click-button", 1, 4),
        _family("click-dialog", 1, 4),
        _family("focus-text-2", 1, 4),
        _family("click-option", 2, 5),
        _family("enter-text", 2, 5),
        _family("choose-list", 1, 5),
        _family("click-tab-2", 1, 6),
        _family("click-collapsible", 2, 5),
        _family("click-checkboxes", 1, 10),
        _family("click-scroll-list", 2, 6),
        _family("enter-password", 3, 6),
        _family("login-user", 3, 6),
        _family("search-engine", 3, 8),
        _family("email-inbox-reply", 4, 8),
        _family("form-sequence-2", 3, 6),
        _family("multi-orderings", 4, 8),
        _undemonstrated("click-test-2", 1, 4),
        _undemonstrated("click-link", 1, 4),
        _undemonstrated("click-dialog-2", 1, 4),
        _undemonstrated("enter-text-dynamic", 2, 5),
        _undemonstrated("click-checkboxes-large", 6, 16),
        _undemonstrated("login-user-popup", 3, 8),
        _undemonstrated("email-inbox-forward", 4, 8),
        _undemonstrated("multi-layouts", 4, 8),
    ),
    # Pages that can only be solved by seeing them: colours, figures and places. The recipe `pixels` shows no elements.
    "miniwob-pixels": (
        _family("click-test-2", 1, 2),
        _family("click-color", 1, 2),
        _family("grid-coordinate", 1, 2),
        _family("identify-shape", 1, 2),
        _family("click-shape", 1, 2),
        _family("count-shape", 1, 2),
        _family("drag-box", 2, 3),
        _graded("circle-center", 2, 3),
        _graded("find-midpoint", 2, 3),
        _graded("bisect-angle", 2, 3),
    ),
}


def suite_of(name: str) -> tuple[Family, ...]:
    """Return the families of a suite. Raise `ConfigError` with the nearest name."""
    return lookup("suite", name, SUITES)


def family(suite: str, name: str) -> Family:
    """Return one family of a suite. Raise `ConfigError` with the nearest name."""
    return lookup("task family", name, {family.name: family for family in suite_of(suite)})
