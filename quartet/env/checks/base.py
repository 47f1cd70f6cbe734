"""Interface of the checks of `quartet env check`, and their findings."""

from abc import abstractmethod
from enum import StrEnum

from msgspec import Struct

from quartet.env.check.subject import Subject
from quartet.part import Part


class Grade(StrEnum):
    """Weight of a finding."""

    ERROR = "error"
    """Training on the environment would be wrong, or would fail."""
    WARNING = "warning"
    """Training works, but the environment is probably not as intended."""
    NOTE = "note"
    """A function of Quartet that the environment does not use."""


class Finding(Struct, frozen=True, kw_only=True):
    """One problem: what was observed, where the code is, and what to do."""

    grade: Grade
    what: str
    where: str = ""
    """File and line of the code, for example `doors.py:24, in Doors.reset`; empty if unknown."""
    advice: str = ""


class EnvCheck(Part):
    """One check of an environment. Its instances are used once."""

    measured: str = ""
    """Measurements of `run`, in one line; empty if the check measures nothing."""

    @abstractmethod
    async def run(self, subject: Subject) -> list[Finding]:
        """Return the problems. Failures of the environment (`EnvError`, `RewardError`) may be raised."""
