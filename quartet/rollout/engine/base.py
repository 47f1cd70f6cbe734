"""The engine protocol: tokens in, tokens out."""

from typing import Protocol

from msgspec import Struct

from quartet.types import FinishReason, Sampling


class GenerateRequest(Struct, frozen=True, kw_only=True):
    """One generation. `request_id` is unique per engine."""

    request_id: str
    prompt_ids: list[int]  # [num_prompt_tokens]
    sampling: Sampling
    stop_token_ids: list[int]
    conversation: str = ""
    """Requests of one conversation share it, so that an engine may keep their cache."""


class GenerateResult(Struct, frozen=True, kw_only=True):
    """What was sampled. A stop token is part of `token_ids`."""

    token_ids: list[int]  # [num_response_tokens]
    logprobs: list[float]  # [num_response_tokens], after temperature and top-p
    entropies: list[float] = []  # [num_response_tokens], of the whole distribution at temperature 1, in nats; or empty
    versions: list[int]  # [num_response_tokens]
    finish_reason: FinishReason


class Engine(Protocol):
    """Raises `EngineError` on infrastructure failure, `PromptTooLongError` when the prompt does not fit."""

    async def generate(self, request: GenerateRequest) -> GenerateResult: ...

    async def abort(self, request_id: str) -> None:
        """End a request early; its `generate` returns what it has, with `FinishReason.ABORT`."""
        ...

    async def version(self) -> int:
        """The policy version served now. Also the health check."""
        ...

    async def close(self) -> None: ...
