"""Experts for pages about numbers: find, guess, generate, draw or mark them."""

import re
from collections.abc import Generator

from .goal import parts, quoted
from .page import Page, click, ensure, fill

PATTERNS = (
    "0110 1001 1001 1001 1001 1001 0110",
    "0010 0110 0010 0010 0010 0010 0010",
    "0110 1001 1001 0010 0100 1000 1111",
    "0110 1001 0001 0110 0001 1001 0110",
    "1000 1010 1010 1111 0010 0010 0010",
    "1111 1000 1000 1110 0001 1001 0110",
    "0110 1001 1000 1110 1001 1001 0110",
    "1111 1001 0001 0010 0010 0100 0100",
    "0110 1001 1001 0110 1001 1001 0110",
    "0110 1001 1001 0111 0001 1001 0110",
)
"""Rows of checkboxes that draw the digits 0 to 9."""


def generated(goal: str, page: Page) -> str:
    """generate-number: `Generate a number less than 5, then press submit.`, or greater than, odd, even."""
    condition, limit = parts(r"Generate an? (?:number )?(less than|greater than|odd|even)(?: number)? ?(\d*),.*", goal)
    shown = page.find("text").label
    meets = {
        "less than": lambda number: number < int(limit),
        "greater than": lambda number: number > int(limit),
        "odd": lambda number: number % 2 == 1,
        "even": lambda number: number % 2 == 0,
    }
    fits = shown.isdecimal() and meets[condition](int(shown))
    return click(page.find("button", "Submit" if fits else "Generate"))


def spinner(goal: str, page: Page) -> str:
    """use-spinner: `Select -3 with the spinner and hit Submit.` The first of two buttons raises the number."""
    (wanted,) = map(int, parts(r"Select (-?\d+) with the spinner and hit Submit\.", goal))
    shown = int(page.find("input").value)
    if shown == wanted:
        return click(page.find("button", "Submit"))
    return click(page.find("button", "ui button", nth=0 if shown < wanted else 1))


def greatest_card(goal: str, page: Page) -> Generator[str, Page, None]:
    """find-greatest: click the card with the greatest number, then Submit."""
    cards = [button for button in page.all("button") if button.label.isdecimal()]
    yield click(max(cards, key=lambda card: int(card.label)))
    yield click(page.find("button", "Submit"))


def guessed(goal: str, page: Page) -> Generator[str, Page, None]:
    """guess-number: halve the range from 0 to 9 by the page's feedback."""
    low, high = 0, 9
    while True:
        guess = (low + high) // 2
        typed = fill(page.find("input"), str(guess))
        page = (yield typed) if typed else page
        page = yield click(page.find("button", "Submit"))
        if re.match(r"The number is lower than", page.find("text").label):
            high = guess - 1
        else:
            low = guess + 1


def odd_or_even(goal: str, page: Page) -> Generator[str, Page, None]:
    """odd-or-even: each number has its own buttons `Odd` and `Even`."""
    for row, number in enumerate(page.all("text")):
        yield click(page.find("button", "Odd" if int(number.label) % 2 else "Even", nth=row))
    yield click(page.find("button", "Submit"))


def drawn(goal: str, page: Page) -> Generator[str, Page, None]:
    """number-checkboxes: draw a digit in seven rows of four checkboxes."""
    (digit,) = quoted(goal)
    pattern = PATTERNS[int(digit)].replace(" ", "")
    for box, bit in zip(page.all("checkbox"), pattern, strict=True):
        if bit == "1" and (action := ensure(box, "checked")):
            yield action
    yield click(page.find("button", "Submit"))
