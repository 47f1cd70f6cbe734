"""Partial responses: a response cut off by a recall, new weights or an engine's end continues from its tokens.

The torch engine's draws depend on seed and position, so at the same version a continued response equals an
uninterrupted one. A server's draws depend on the seed and the number of draws so far: there the rest has a seed of its
own.
"""

from msgspec.structs import replace

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.types import FinishReason, TokenColumns

NOTHING = GenerateResult(finish_reason=FinishReason.ABORT)
"""Empty result with which a request begins."""


def rest_of(request: GenerateRequest, sampled: TokenColumns) -> GenerateRequest:
    """Return the request for the tokens still to be sampled."""
    done = len(sampled)
    limits = request.sampling
    return replace(
        request,
        prompt_ids=request.prompt_ids + sampled.token_ids,
        begun_tokens=request.begun_tokens + done,
        sampling=replace(limits, max_tokens=limits.max_tokens - done, min_tokens=max(limits.min_tokens - done, 0)),
    )


def server_seed(request: GenerateRequest) -> int:
    """Return the seed for a server, in [0, 2^63). A continuation must not reuse the beginning's random numbers."""
    return (request.sampling.seed + request.begun_tokens) % 2**63
