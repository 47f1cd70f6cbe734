"""Responses in parts. A recall, new weights or an engine's end cuts one off; it goes on from the tokens it has.

The torch engine's draws depend on seed and position, so at the same version its response in parts is the same as one in
one piece. A server's depend on the seed and the number of draws so far: there the rest has a seed of its own.
"""

from msgspec.structs import replace

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.types import FinishReason, TokenColumns

NOTHING = GenerateResult(finish_reason=FinishReason.ABORT)
"""What a request begins with."""


def rest_of(request: GenerateRequest, sampled: TokenColumns) -> GenerateRequest:
    """What of a request is still to be sampled."""
    done = len(sampled)
    limits = request.sampling
    return replace(
        request,
        prompt_ids=request.prompt_ids + sampled.token_ids,
        begun_tokens=request.begun_tokens + done,
        sampling=replace(limits, max_tokens=limits.max_tokens - done, min_tokens=max(limits.min_tokens - done, 0)),
    )


def server_seed(request: GenerateRequest) -> int:
    """The seed that a server is asked with, in [0, 2^63): a rest must not draw the beginning's random numbers again."""
    return (request.sampling.seed + request.begun_tokens) % 2**63
