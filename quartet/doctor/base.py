"""The interface of checks, what they are given, and what they answer."""

from abc import abstractmethod
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from quartet.config import Recipe
from quartet.env import make_environment
from quartet.errors import QuartetError
from quartet.part import Part


class Grade(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Something works less well than it could, or an optional part is missing."""
    LACKS = "lacks"
    """A run will not work."""


class Finding(Struct, frozen=True, kw_only=True):
    """One answer. `advice` says how to mend what is not ok."""

    grade: Grade
    what: str
    advice: str = ""


class Place(Struct, frozen=True, kw_only=True):
    """What is examined: the machine, as seen by a run that would lie in `runs`."""

    runs: Path
    recipe: Recipe | None = None
    """With a recipe its own environment, ledger, ports and model are looked at; without, what any run may need."""

    @property
    def needs_browser(self) -> bool:
        return self.recipe is None or make_environment(self.recipe.env).needs_browser


class Doctor(Part):
    """One check of the machine, in one file."""

    before_training: ClassVar[bool] = False
    """Whether `quartet train --dry-run` makes the check too: it needs a recipe, and no torch."""

    @abstractmethod
    def examine(self, place: Place) -> Iterable[Finding]:
        """Return what is there and what is lacking. Changes nothing."""


def ok(what: str) -> Finding:
    return Finding(grade=Grade.OK, what=what)


def note(what: str, advice: str) -> Finding:
    return Finding(grade=Grade.NOTE, what=what, advice=advice)


def lacks(what: str, advice: str) -> Finding:
    return Finding(grade=Grade.LACKS, what=what, advice=advice)


def refused(error: QuartetError) -> Finding:
    """The error that a run would end with."""
    return lacks(error.what, error.advice)
