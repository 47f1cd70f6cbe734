"""Experts for pages on which items are dragged to other items."""

from collections.abc import Generator

from .page import Page, click, drag


def into_box(goal: str, page: Page) -> Generator[str, Page, None]:
    """drag-box: drag the box `s` away, and then to the middle of the box `L`, which it may have covered at first."""
    yield drag(page.find("text", "s"), page.find("button", "Submit"))
    yield drag(page.find("text", "s"), page.find("text", "L"))
    yield click(page.find("button", "Submit"))


def sorted_numbers(goal: str, page: Page) -> Generator[str, Page, None]:
    """drag-sort-numbers: drag the lowest number of the rest up to its place, one after another."""
    for place in range(len(page.all("text"))):
        rows = page.all("text")
        lowest = min(rows[place:], key=lambda row: int(row.label))
        if lowest != rows[place]:
            page = yield drag(lowest, rows[place])
    yield click(page.find("button", "Submit"))
