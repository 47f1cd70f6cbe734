"""Time limits of a session's phases."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, Self

from msgspec import Struct

from quartet import config
from quartet.errors import EnvError

if TYPE_CHECKING:
    from quartet.env.base import Env, EnvPool

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

    async def releases(self, pool: "EnvPool", env: "Env", *, healthy: bool) -> bool:
        """Release a session. Return whether its `close` returned within the limit, after which it is cancelled."""
        release = asyncio.create_task(pool.release(env, healthy=healthy))
        if not (await asyncio.wait([release], timeout=self.release))[0]:
            release.cancel()
            return False
        release.result()
        return True

    @asynccontextmanager
    async def bounded(self, phase: Literal["start", "reset", "step"], what: str) -> AsyncIterator[list[str]]:
        """Bound a block by the limit of its phase. The block may add problems to the list that it gets.

        Raise `EnvError` at the limit, with the last problem and the name of the setting.
        """
        problems: list[str] = []
        seconds: float = getattr(self, phase)
        try:
            async with asyncio.timeout(seconds):
                yield problems
        except TimeoutError:
            reason = "".join(f": {problem}" for problem in problems[-1:])
            advice = f"raise env.{phase}_timeout_seconds"
            raise EnvError(f"{what} took longer than {seconds:g} s{reason}", advice) from None
