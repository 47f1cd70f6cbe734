"""Experts for orders: tickets and food."""

import re
from collections.abc import Generator

from quartet.errors import ExpertError

from .goal import parts
from .page import Element, Page, click


def ticket(goal: str, page: Page) -> str:
    """buy-ticket: `Buy the ticket with the cheapest cost.`, or most expensive, shortest, longest."""
    superlative, measure = parts(r"Buy the ticket with the (cheapest|most expensive|shortest|longest) (\w+)\.", goal)
    durations = [_minutes(text.label) for text in page.all("text") if text.label != "Duration:"]
    tickets = page.all("button")
    prices = [int(button.label.split("$")[1]) for button in tickets]
    values = prices if measure == "cost" else durations
    best = max(values) if superlative in ("most expensive", "longest") else min(values)
    return click(tickets[values.index(best)])


def order(goal: str, page: Page) -> Generator[str, Page, None]:
    """order-food: `Order one of each item: Garlic bread, Cheese wheel` or `Order 3 items that are vegan`."""
    dishes = _dishes(page)
    if goal.startswith("Order one of each item: "):
        chosen = [name.strip() for name in goal.removeprefix("Order one of each item: ").split(",")]
    else:
        number, kind = parts(r"Order (\d+) items that are (\S+)", goal)
        fitting = next(name for name, elements in dishes.items() if any(kind == e.label for e in elements))
        chosen = [fitting] * int(number)
    for name in chosen:
        yield click(next(element for element in dishes[name] if element.label == "+"))
    yield click(page.find("button", "Order!"))


def _minutes(duration: str) -> int:
    match = re.fullmatch(r"(?:(\d+)h)? ?(?:(\d+)m)?", duration)
    if match is None:
        raise ExpertError(f"not a duration: {duration!r}")
    return 60 * int(match[1] or 0) + int(match[2] or 0)


def _dishes(page: Page) -> dict[str, list[Element]]:
    """Return the elements of each dish, by its name: marks of its kind, then `-` and `+`."""
    dishes: dict[str, list[Element]] = {}
    name = ""
    for element in page.elements:
        if element.kind == "text" and element.label not in "-+":
            name = element.label
        dishes.setdefault(name, []).append(element)
    return dishes
