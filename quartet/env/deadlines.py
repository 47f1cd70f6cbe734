"""Time limits of a session's phases."""

from typing import Self

from msgspec import Struct

from quartet import config

START_SECONDS = 120.0
"""Default of the limit for making a session."""
RELEASE_SECONDS = 10.0
"""Default of the limit for releasing a session that failed."""


class Deadlines(Struct, frozen=True, kw_only=True):
    """Limits in seconds. The defaults of the phases are those of `[env]`."""

    step: float = 20.0
    reset: float = 20.0
    start: float = START_SECONDS
    release: float = RELEASE_SECONDS
    """Time for which a failed request waits for the release of its session before it is answered."""

    @classmethod
    def of(cls, env: config.Env) -> Self:
        """Return the limits that a recipe sets."""
        reset_seconds = env.reset_timeout_seconds or env.step_timeout_seconds
        return cls(step=env.step_timeout_seconds, reset=reset_seconds, start=env.start_timeout_seconds)

    @property
    def opening(self) -> float:
        """Limit for a client's reset: of an environment that died, then of another one, whose start it waits for."""
        return self.reset + self.release + self.start + self.reset
