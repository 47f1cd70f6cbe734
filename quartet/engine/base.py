"""Engine protocol: token ids in, token ids out."""

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
    """Texts that end the response at the token that completes one of them; special tokens count as text."""
    begun_tokens: int = 0
    """Number of tokens at the end of `prompt_ids` that are the response's beginning, sampled earlier. `sampling` limits
    the rest; a stop string may begin in them."""
    media: list[Media] = []
    """Pictures for the placeholders in the prompt, in their order."""
    pictures: dict[str, bytes] = {}
    """Encoded pictures by content hash."""
    conversation: str = ""
    """Key shared by the requests of one conversation, so that an engine may keep their cache."""

    @property
    def begun_ids(self) -> list[int]:
        """Tokens of the response that are part of the prompt."""
        return self.prompt_ids[len(self.prompt_ids) - self.begun_tokens :]


class GenerateResult(TokenColumns, frozen=True, kw_only=True):
    """Result of a generation. `token_ids` includes a stop token, or the whole token that completed a stop string.

    `logprobs` and `versions` are both empty if a server reports no log-probs; it then serves evaluation only.
    """

    finish_reason: FinishReason
    stop_string: str = ""
    """Stop string that ended the response; "" if a stop token or something else did."""

    @classmethod
    def of(cls, tokens: TokenColumns, finish_reason: FinishReason, stop_string: str = "") -> "GenerateResult":
        return cls(**tokens.columns(), finish_reason=finish_reason, stop_string=stop_string)

    @property
    def tokens(self) -> TokenColumns:
        """Token columns without the finish reason."""
        return TokenColumns(**self.columns())


class Engine(Protocol):
    """Inference engine. Raises `EngineError` on infrastructure failure, `PromptTooLongError` if the prompt does not
    fit."""

    async def generate(self, request: GenerateRequest) -> GenerateResult: ...

    async def abort(self, request_id: str) -> None:
        """End a request early; its `generate` returns the tokens so far, with `FinishReason.ABORT`."""
        ...

    async def version(self) -> int:
        """Return the policy version served now. Also the health check."""
        ...

    async def close(self) -> None: ...


class Counters(Struct):
    """Totals since the engine started, for metrics."""

    requests: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    """Prompt tokens that were not computed, because their prefix was cached."""
    recomputed_tokens: int = 0
    """Tokens of requests in flight computed again, after new weights or a preemption."""
    recompute_ms: float = 0.0
    """Decode time spent on recomputed tokens: their share of each pass. 0 if a server does not report it."""
    put_back: int = 0
    """Preemptions: requests that gave up their row because the rows exceeded their memory."""
    generated_tokens: int = 0
    steps: int = 0


class PolicyLoad(Struct, frozen=True, kw_only=True):
    """Timings and canary gap of a policy load."""

    version: int
    prove_seconds: float
    """Time to read and prove the weights, while the engine kept decoding."""
    swap_ms: float
    """Time to exchange the weights, while decoding was paused."""
    canary_gap: float | None
    """Largest log-prob difference to the trainer in nats; None without a canary."""


class ServedEngine(Engine, Protocol):
    """Engine as its process sees it: the process serves it and keeps its policy up to date."""

    max_context_tokens: int
    """Limit of prompt and response together."""
    vocab_size: int

    @property
    def counters(self) -> Counters: ...

    @property
    def active_requests(self) -> int:
        """Number of requests waiting or running."""
        ...

    def so_far(self, request_id: str) -> GenerateResult:
        """Return what a request in flight has sampled so far, with `FinishReason.ABORT`; no tokens if unknown."""
        ...

    async def load_policy(self, path: str | Path, version: int) -> PolicyLoad:
        """Serve the weights in folder `path` as `version`, with requests in flight.

        Raises `CheckpointError` if they are damaged, do not fit the model or fail the canary. The engine then keeps its
        current weights, and no token of the refused ones is ever returned.
        """
        ...
