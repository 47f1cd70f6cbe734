"""Dispatch `least_work`: the engine that is expected to finish the request first."""

from quartet.engine.dispatch.base import Candidate, Dispatch


class LeastWork(Dispatch):
    """A request goes to the engine with the fewest tokens to compute, whatever its memory and its policy."""

    def rank(self, candidate: Candidate) -> tuple[float, ...]:
        return (candidate.work_tokens,)
