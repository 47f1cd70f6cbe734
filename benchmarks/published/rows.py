"""Rows of a part's results: the outcomes under its assumptions, and under each variation of them."""

from collections.abc import Iterator
from typing import Any, Generic

from msgspec import Struct
from msgspec.structs import asdict, replace

from benchmarks.published.base import A, Changes, Outcome, Part, Simulate
from benchmarks.published.simulated import NotSimulatedError


class Row(Struct, Generic[A], frozen=True, kw_only=True):
    """Outcomes under one set of assumptions."""

    changes: Changes
    """Difference to the part's assumptions; empty for these."""
    assumed: A
    """All assumed settings, calibrated ones included."""
    outcomes: dict[str, Outcome]


def rows(part: Part[A], simulate: Simulate[A], *, varied: bool = True) -> Iterator[Row[A]]:
    """Yield the row without changes and, if `varied`, those of the variations."""
    yield _row(part, {}, simulate)
    for changes in part.variations if varied else ():
        yield _row(part, changes, simulate)


def finished_rows(part: Part[A], simulate: Simulate[A]) -> Iterator[Row[A]]:
    """Yield the rows of which all systems have been simulated."""
    for changes in ({}, *part.variations):
        try:
            yield _row(part, changes, simulate)
        except NotSimulatedError:
            continue


def report(found: list[Row[A]]) -> dict[str, Any]:
    """Return the results for the JSON line."""
    first, *others = found
    outcomes = {
        name: {
            "published": _published(one),
            "simulated": round(one.simulated, 3),
            "reproduced": one.reproduced,
        }
        for name, one in first.outcomes.items()
    }
    variations = {
        described(row.changes): {name: round(one.simulated, 3) for name, one in row.outcomes.items()} for row in others
    }
    return outcomes | {"assumed": asdict(first.assumed), "variations": variations}


def described(changes: Changes) -> str:
    """Return changes as text."""
    return ", ".join(f"{name} = {value}" for name, value in changes.items())


def _row(part: Part[A], changes: Changes, simulate: Simulate[A]) -> Row[A]:
    assumed = part.prepared(replace(part.assumed, **changes), simulate)
    figures = {system: simulate(assumed, system) for system in part.systems}
    return Row(changes=changes, assumed=assumed, outcomes=part.outcomes(assumed, figures))


def _published(outcome: Outcome) -> float | list[float | None] | None:
    """Return a single value, or lowest and highest; None for no value and for no bound."""
    if outcome.published is None:
        return None
    low, high = outcome.published
    return low if low == high else [low, high if high < float("inf") else None]
