"""Expert for flights: two places with suggestions, a calendar, and a list of flights."""

import re

from quartet.errors import ExpertError

from .dates import MONTHS
from .goal import parts
from .page import Element, Page, click

GOAL = r"Book the (cheapest|shortest) one-way flight from: (.+) to: (.+) on (\d+)/(\d+)/(\d+)\."
AIRPORT, CODE = re.compile(r".+ \([A-Z]{3}\)"), re.compile(r"[A-Z]{3}")


def booked(goal: str, page: Page) -> str:
    """book-flight: `Book the cheapest one-way flight from: RAP to: Wichita, KS on 11/16/2016.`"""
    best, *places, month, day, year = parts(GOAL, goal)
    if page.has("button", "Back"):
        return click(_best(page, best))
    # A code in parentheses has one suggestion. Of several, those below the first move away from the mouse.
    origin, target = (f"({place})" if CODE.fullmatch(place) else place for place in places)
    for label, place in (("From:", origin), ("To:", target)):
        field = page.find("input", label)
        if AIRPORT.fullmatch(field.value) and place in field.value:
            continue
        return _suggestion(page, place) if field.value == place else f'type {field.target} "{place}"'
    return _dated(page, month, day, year) or click(page.find("button", "Search"))


def _suggestion(page: Page, place: str) -> str:
    """Return a click on the last suggestion with the place. Those of the other field, which are hidden, come first."""
    fitting = [text for text in page.all("text") if AIRPORT.fullmatch(text.label) and place in text.label]
    if not fitting:
        raise ExpertError(f"the page suggests no airport of {place}")
    return click(fitting[-1])


def _dated(page: Page, month: str, day: str, year: str) -> str | None:
    """Return the next action towards a date in the calendar, which opens in December; None if the field has it."""
    field = page.find("input", "Departure Date")
    if field.value == f"{month}/{day}/{year}":
        return None
    if page.has("text", f"{MONTHS[int(month) - 1]} {year}"):
        return click(page.find("link", str(int(day))))
    return click(page.find("link", "Prev") if page.has("link", "Prev") else field)


def _best(page: Page, best: str) -> Element:
    """Return the button of the cheapest or the shortest flight. Each is below the duration of its flight."""
    offers, minutes = list[tuple[int, Element]](), 0
    for element in page.elements:
        if duration := re.fullmatch(r"(\d+)h (\d+)m", element.label):
            minutes = 60 * int(duration[1]) + int(duration[2])
        elif price := re.fullmatch(r"Book flight for \$(\d+)", element.label):
            offers.append((int(price[1]) if best == "cheapest" else minutes, element))
    if not offers:
        raise ExpertError("the page offers no flight")
    return min(offers, key=lambda offer: offer[0])[1]
