"""Interface of engines: requests and results in token ids."""

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from quartet.types import FinishReason, Media, Sampling, TokenColumns


class GenerateRequest(Struct, frozen=True, kw_only=True):
    """One generation. `request_id` is unique per engine."""

    request_id: str
    prompt_ids: list[int]  # [num_prompt_tokens]
    sampling: Sampling
    stop_token_ids: list[int]
    stop_strings: list[str] = []
    """Stop strings. A token that completes a stop string ends the response. Special tokens count as text."""
    begun_tokens: int = 0
    """Number of tokens at the end of `prompt_ids` that were sampled earlier as the beginning of this response. The
    limits in `sampling` apply to the tokens still to be sampled; a stop string may begin in the earlier tokens."""
    media: list[Media] = []
    """Pictures for the placeholders in the prompt, in the order of the placeholders."""
    pictures: dict[str, bytes] = {}
    """Encoded pictures by content hash."""
    conversation: str = ""
    """Key shared by the requests of one conversation, so that an engine can reuse their KV cache."""

    @property
    def begun_ids(self) -> list[int]:
        """Token ids of the beginning of the response, which are the last of `prompt_ids`."""
        return self.prompt_ids[len(self.prompt_ids) - self.begun_tokens :]


class GenerateResult(TokenColumns, frozen=True, kw_only=True):
    """Result of a generation. `token_ids` includes the stop token, or the whole token that completed a stop string.

    `logprobs` and `versions` are both empty if the server reports no log-probs. Such a server can be used for
    evaluation only.
    """

    finish_reason: FinishReason
    stop_string: str = ""
    """Stop string that ended the response; "" if it ended otherwise."""

    @classmethod
    def of(cls, tokens: TokenColumns, finish_reason: FinishReason, stop_string: str = "") -> "GenerateResult":
        return cls(**tokens.columns(), finish_reason=finish_reason, stop_string=stop_string)

    @property
    def tokens(self) -> TokenColumns:
        """Token columns without the finish reason and the stop string."""
        return TokenColumns(**self.columns())


class EngineState(Struct, frozen=True):
    """State of an engine, by which the router dispatches requests."""

    version: int
    cache_use: float | None = None
    """Keys and values of all requests, running and waiting, as a share of the memory for them. Above 1, requests wait
    for memory. None if the engine does not report it."""


class Engine(Protocol):
    """Inference engine. Its methods raise `EngineError` if the engine fails, and `PromptTooLongError` if a prompt does
    not fit."""

    async def generate(self, request: GenerateRequest) -> GenerateResult: ...

    async def abort(self, request_id: str) -> None:
        """End a request early; its `generate` returns the tokens sampled so far with `FinishReason.ABORT`."""
        ...

    async def version(self) -> int:
        """Return the policy version that is served now. Also used as health check."""
        ...

    async def close(self) -> None: ...


class ReportingEngine(Engine, Protocol):
    """Engine that reports its state, as a router needs it."""

    async def state(self) -> EngineState: ...


class Counters(Struct):
    """Totals since the engine started, for metrics."""

    requests: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    """Number of prompt tokens that were not computed, because their prefix was cached."""
    recomputed_tokens: int = 0
    """Number of tokens whose keys and values were computed again, after new weights or a preemption."""
    recompute_ms: float = 0.0
    """Time of the forward passes, multiplied in each pass by the share of recomputed tokens; 0 if a server does not
    report it."""
    put_back: int = 0
    """Number of preemptions: a request lost its row of the KV cache because the rows exceeded their memory."""
    generated_tokens: int = 0
    steps: int = 0


class PolicyLoad(Struct, frozen=True, kw_only=True):
    """Durations, canary gap and size of a policy load."""

    version: int
    prove_seconds: float
    """Time for reading and verifying the weights, during which the engine kept decoding."""
    swap_ms: float
    """Time for exchanging the weights, during which decoding was paused."""
    canary_gap: float | None
    """Canary gap (`Canary.gap`) in nats; None without a canary."""
    num_bytes: int | None = None
    """Size in bytes of the files or tensors that were read; None if a server reads them."""


class ServedEngine(ReportingEngine, Protocol):
    """Engine with the methods that an engine process needs to serve it and to load new policies."""

    max_context_tokens: int
    """Maximum number of tokens of prompt and response together."""
    vocab_size: int
    counters: Counters

    @property
    def active_requests(self) -> int:
        """Number of requests that are waiting or running."""
        ...

    def so_far(self, request_id: str) -> GenerateResult:
        """Return the tokens that a request in flight has sampled so far, with `FinishReason.ABORT`.

        The result has no tokens if the id is unknown.
        """
        ...

    async def load_policy(self, path: str | Path, version: int) -> PolicyLoad:
        """Serve the weights in folder `path` as `version`; requests in flight continue.

        Raises `CheckpointError` if the weights are damaged, do not fit the model or fail the canary. The engine then
        keeps its current weights, and no token sampled from the rejected weights is ever returned.
        """
        ...
