"""One request in the engine: its row, its next tokens, its sampled tokens, and its end."""

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.forward import Span
from quartet.engine.stop_strings import StopStrings
from quartet.errors import EngineError
from quartet.types import FinishReason, TokenColumns


@dataclass(slots=True, eq=False)
class Running:
    """Waiting or running request."""

    request: GenerateRequest
    """Request as limited to the context."""
    finish: Callable[[GenerateResult | EngineError], None]
    """Callback for the result, called once, in the step thread."""
    stop_strings: StopStrings | None = None
    sampled: TokenColumns = field(default_factory=TokenColumns)
    stop_string: str = ""
    """Stop string that ended the response."""

    started: bool = False
    """True once the request has had a row; after a preemption it may wait for another one."""
    held: int = 0
    """Number of tokens whose keys and values are in the row."""
    recompute_until: int = 0
    """Tokens before this position were computed before, by older weights or in a row that was given up."""
    first_version: int = 0
    """Version of the weights that computed the row; -1 (`scheduler.MIXED`) if several did."""
    oldest_version: int = 0
    """Oldest version of the weights that computed the row."""

    @property
    def length(self) -> int:
        """Number of prompt and response tokens so far = position of the next token."""
        return len(self.request.prompt_ids) + len(self.sampled.token_ids)

    @property
    def decodes(self) -> bool:
        """True if only the last sampled token is left to compute; otherwise the request is in prefill."""
        return bool(self.sampled.token_ids) and self.held == self.length - 1

    def next_span(self, budget: int) -> Span:
        """Return the last sampled token, or a chunk of at most `max(budget, 1)` tokens still to compute."""
        if self.decodes:
            return Span(self.held, self.sampled.token_ids[-1:])
        return Span(self.held, self.known_ids()[self.held : self.held + max(budget, 1)])

    def known_ids(self) -> list[int]:
        """Return the ids of prompt and response so far."""
        return [*self.request.prompt_ids, *self.sampled.token_ids] if self.sampled else self.request.prompt_ids

    def take(self, token_id: int, logprob: float, entropy: float, version: int) -> FinishReason | None:
        """Append a sampled token. Return the finish reason if the response ends with it, else None."""
        oldest = min(self.oldest_version, version)
        self.sampled.append(token_id, logprob=logprob, entropy=entropy, version=version, cache_version=oldest)
        if token_id in self.request.stop_token_ids:
            return FinishReason.STOP
        if self.stop_strings is not None and len(self.sampled.token_ids) > self.request.sampling.min_tokens:
            self.stop_string = self.stop_strings.completed(self.sampled.token_ids)
            if self.stop_string:
                return FinishReason.STOP
        return FinishReason.LENGTH if len(self.sampled.token_ids) == self.request.sampling.max_tokens else None

    def so_far(self) -> GenerateResult:
        """Return the tokens sampled so far; callable from any thread."""
        return _result(self.sampled[: len(self.sampled.cache_versions)], FinishReason.ABORT)

    def give_up_row(self) -> None:
        """Mark the row's contents as lost."""
        self.recompute_until, self.held = max(self.recompute_until, self.held), 0

    def begin_again(self) -> None:
        """Discard the sampled tokens."""
        self.sampled = TokenColumns()
        self.held = min(self.held, len(self.request.prompt_ids))
        self.recompute_until = min(self.recompute_until, len(self.request.prompt_ids))

    def result(self, reason: FinishReason) -> GenerateResult:
        return _result(self.sampled, reason, self.stop_string)


def _result(sampled: TokenColumns, reason: FinishReason, stop_string: str = "") -> GenerateResult:
    """Return the sampled tokens as a result, without `cache_versions` if they equal the tokens' versions."""
    result = GenerateResult.of(sampled, reason, stop_string)
    return replace(result, cache_versions=[]) if result.cache_versions == result.versions else result
