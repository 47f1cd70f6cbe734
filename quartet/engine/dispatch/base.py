"""Interface of dispatches: the engine that gets the next request."""

from abc import abstractmethod
from typing import NamedTuple

from quartet.engine.base import EngineState
from quartet.part import Part


class Candidate(NamedTuple):
    """An engine that could get a request."""

    work_tokens: int
    """Tokens that the engine still has to compute for the requests of this worker, with the new one."""
    state: EngineState | None
    """State that the engine reported last; None if it has not reported lately."""
    versions_behind: int
    """Number of versions between the newest policy that any engine serves and the policy of this one."""


class Dispatch(Part):
    """Choice among the engines that answer. With one engine it decides only about new rollouts."""

    @abstractmethod
    def rank(self, candidate: Candidate) -> tuple[float, ...]:
        """Return the rank of a candidate. The request goes to the candidate with the lowest rank."""

    def is_full(self, state: EngineState | None) -> bool:
        """Return whether an engine has no memory for more requests. While all engines are full, workers begin no
        rollouts."""
        return False
