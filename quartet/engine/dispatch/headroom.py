"""Dispatch `headroom`: the least work among engines that have memory left and serve a recent policy."""

from typing import Annotated

from pydantic import Field

from quartet.config.section import PositiveFloat, Section
from quartet.engine.base import EngineState
from quartet.engine.dispatch.base import Candidate, Dispatch


class Headroom(Dispatch):
    """Among engines with memory and a recent policy, a request goes to the one with the least work.

    An engine whose memory is full preempts requests and computes their tokens again later. An engine that stays at an
    old policy samples tokens that the trainer may have to leave out. Such engines get requests only if all others are
    unreachable or worse: memory comes first, since full engines of any policy make no progress with more requests.
    """

    class Settings(Section):
        max_cache_use: PositiveFloat = 0.9
        """Share of the memory for keys and values from which an engine counts as full."""
        max_versions_behind: Annotated[int, Field(ge=0)] = 1
        """Number of versions that an engine may be behind the newest one that any engine serves. Engines load a policy
        one after another, so all but one are a version behind for some time."""

    settings: Settings
    source = "prime-rl, pull requests 2902 and 3285: concurrency follows the use of the KV cache"

    def rank(self, candidate: Candidate) -> tuple[float, ...]:
        is_old = candidate.versions_behind > self.settings.max_versions_behind
        return (self.is_full(candidate.state), is_old, candidate.work_tokens)

    def is_full(self, state: EngineState | None) -> bool:
        return state is not None and (state.cache_use or 0.0) >= self.settings.max_cache_use
