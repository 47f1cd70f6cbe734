"""Experts for long texts: scroll them, or select their text."""

import re
from collections.abc import Generator

from .goal import ordinal, quoted
from .page import Page, click, fill, scroll

WHOLE_TEXT = 100
"""Wheel steps that scroll to either end of any text."""


def to_end(goal: str, page: Page) -> Generator[str, Page, None]:
    """scroll-text-2: `Scroll the textarea to the bottom of the text hit submit.`, or to the top."""
    yield scroll(page.find("textarea"), "down" if "bottom" in goal else "up", WHOLE_TEXT)
    yield click(page.find("button", "Submit"))


def signed(goal: str, page: Page) -> Generator[str, Page, None]:
    """sign-agreement: cancel at once, or scroll to the end, enter a name, and press a button."""
    if goal == "Click the cancel button.":
        yield click(page.find("button", "Cancel"))
        return
    name, button = quoted(goal, 2)
    page = yield scroll(page.find("textarea"), "down", WHOLE_TEXT)
    page = yield fill(page.find("input"), name) or "wait"
    yield click(page.find("button", button))


def highlighted(goal: str, page: Page) -> Generator[str, Page, None]:
    """highlight-text and -2: `Highlight the text in the 2nd paragraph and click submit.`"""
    position = re.search(r"\d\w\w", goal)
    yield f"triple_click {page.find('text', nth=ordinal(position[0]) if position else 0).target}"
    yield click(page.find("button", "Submit"))
