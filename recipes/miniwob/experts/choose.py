"""Experts for pages on which items are selected in the order of the goal, and then submitted."""

from collections.abc import Iterable

from .goal import listed, parts
from .page import Page, choose, click, ensure, first

SELECT_AND_SUBMIT = r"Select (.*) and click Submit\."


def radio(goal: str, page: Page) -> str:
    """click-option: `Select x9 and click Submit.`"""
    (label,) = parts(SELECT_AND_SUBMIT, goal)
    return _then_submit(page, [ensure(page.find("radio", label), "checked")])


def checkboxes(goal: str, page: Page) -> str:
    """click-checkboxes and -large: `Select ag9, x and click Submit.`"""
    labels = listed(SELECT_AND_SUBMIT, goal)
    return _then_submit(page, (ensure(page.find("checkbox", label), "checked") for label in labels))


def closed_list(goal: str, page: Page) -> str:
    """choose-list: `Select Spain from the list and click Submit.`"""
    (option,) = parts(r"Select (.*) from the list and click Submit\.", goal)
    return _then_submit(page, [choose(page.find("select"), option)])


def scroll_list(goal: str, page: Page) -> str:
    """click-scroll-list: `Select Ada, Bo from the scroll list and click Submit.`"""
    options = listed(r"Select (.*) from the scroll list and click Submit\.", goal)
    return _then_submit(page, (ensure(page.find("option", option), "selected") for option in options))


def _then_submit(page: Page, steps: Iterable[str | None]) -> str:
    return first(steps) or click(page.find("button", "Submit"))
