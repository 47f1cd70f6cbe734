"""Time limits of a session's phases."""

from typing import Self

from msgspec import Struct

from quartet import config

START_SECONDS = 120.0
"""Default of the limit for making a session."""


class Deadlines(Struct, frozen=True, kw_only=True):
    """Limits in seconds."""

    step: float
    reset: float
    start: float = START_SECONDS

    @classmethod
    def of(cls, env: config.Env) -> Self:
        """Return the limits that a recipe sets."""
        reset_seconds = env.reset_timeout_seconds or env.step_timeout_seconds
        return cls(step=env.step_timeout_seconds, reset=reset_seconds, start=env.start_timeout_seconds)

    @property
    def opening(self) -> float:
        """Limit for a client's reset, which may wait for the start of a session."""
        return self.start + self.reset
