"""Experts for dates: in a field of dates, and in a calendar."""

from collections.abc import Generator

from .goal import parts
from .page import Page, click

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)


def typed(goal: str, page: Page) -> Generator[str, Page, None]:
    """enter-date: a click enters one of the three parts of the field; the digits are typed from the first part."""
    month, day, year = parts(r"Enter (\d+)/(\d+)/(\d+) as the date and hit submit\.", goal)
    yield click(page.find("input"))
    yield "key Left Left"
    yield f'type here "{month}{day}{year}"'
    yield click(page.find("button", "Submit"))


def calendar(goal: str, page: Page) -> Generator[str, Page, None]:
    """choose-date and its variants: `Select 03/05/2016 as the date and hit submit.` The calendar opens in December."""
    month, day, year = map(int, parts(r"Select (\d+)/(\d+)/(\d+) as the date and hit submit\.", goal))
    page = yield click(page.find("input"))
    while not page.has("text", f"{MONTHS[month - 1]} {year}"):
        page = yield click(page.find("link", "Prev"))
    page = yield click(page.find("link", str(day)))
    yield click(page.find("button", "Submit"))
