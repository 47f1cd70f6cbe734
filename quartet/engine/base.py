"""The engine protocol: tokens in, tokens out."""

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
    """The response also ends with the token that completes one of these in its text; special tokens count as text."""
    begun_tokens: int = 0
    """This many tokens at the end of `prompt_ids` are the response's beginning, sampled earlier. `sampling` limits the
    rest; a stop string may begin in them."""
    media: list[Media] = []
    """Pictures that placeholders of the prompt stand for, in their order."""
    pictures: dict[str, bytes] = {}
    """These pictures, encoded, by content hash."""
    conversation: str = ""
    """Requests of one conversation share it, so that an engine may keep their cache."""

    @property
    def begun_ids(self) -> list[int]:
        """The tokens of the response that stand in the prompt."""
        return self.prompt_ids[len(self.prompt_ids) - self.begun_tokens :]


class GenerateResult(TokenColumns, frozen=True, kw_only=True):
    """What was sampled. A stop token is part of `token_ids`, and so is the whole token that completed a stop string.

    A server that tells no log-probs serves evaluation only: `logprobs` and `versions` are both empty then.
    """

    finish_reason: FinishReason
    stop_string: str = ""
    """The stop string that ended the response; "" when a stop token or something else did."""

    @classmethod
    def of(cls, tokens: TokenColumns, finish_reason: FinishReason, stop_string: str = "") -> "GenerateResult":
        return cls(**tokens.columns(), finish_reason=finish_reason, stop_string=stop_string)

    @property
    def tokens(self) -> TokenColumns:
        """The columns alone."""
        return TokenColumns(**self.columns())


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


class Counters(Struct):
    """Totals since the engine started, for metrics."""

    requests: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    """Prompt tokens that were not computed, because their prefix was known."""
    recomputed_tokens: int = 0
    """Tokens of requests in flight that were computed again: the weights changed, or they had given up their row."""
    recompute_ms: float = 0.0
    """Decode time that was lost to them: of each pass, their share of its tokens. 0 where a server does not tell."""
    put_back: int = 0
    """Times that a request gave up its row, because the rows had outgrown their memory."""
    generated_tokens: int = 0
    steps: int = 0


class PolicyLoad(Struct, frozen=True, kw_only=True):
    """How a new policy was picked up."""

    version: int
    prove_seconds: float
    """Reading the weights and proving them, while the engine went on decoding."""
    swap_ms: float
    """Exchanging them, while nobody decoded."""
    canary_gap: float | None
    """Largest log-prob difference to the trainer in nats; None without a canary."""


class ServedEngine(Engine, Protocol):
    """What the engine's process needs besides: it serves the engine and keeps its policy up to date."""

    max_context_tokens: int
    """Prompt and response together."""
    vocab_size: int

    @property
    def counters(self) -> Counters: ...

    @property
    def active_requests(self) -> int:
        """Requests waiting or running."""
        ...

    def so_far(self, request_id: str) -> GenerateResult:
        """What a request in flight has sampled by now, with `FinishReason.ABORT`; no token where it cannot tell."""
        ...

    async def load_policy(self, path: str | Path, version: int) -> PolicyLoad:
        """Serve the weights in folder `path` as `version`, with requests in flight.

        Raises `CheckpointError` when they are damaged, do not fit the model or fail the canary; the engine then goes on
        with the weights it had, and no token of the refused ones is ever answered.
        """
        ...
