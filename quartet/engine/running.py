"""One request in the engine: what its row holds, what it needs next, what was sampled, and when it ends."""

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
    """A request that waits or runs."""

    request: GenerateRequest
    """Fits the context."""
    finish: Callable[[GenerateResult | EngineError], None]
    """Called once, in the step thread."""
    stop_strings: StopStrings | None = None
    sampled: TokenColumns = field(default_factory=TokenColumns)
    stop_string: str = ""
    """The one that ended it."""

    started: bool = False
    """Whether it has had a row; it may wait for another one."""
    held: int = 0
    """Tokens whose keys and values its row holds."""
    recompute_until: int = 0
    """Those before here were computed before, by older weights or in a row that was given up."""
    first_version: int = 0
    """Of the weights that computed them, from this version on."""
    oldest_version: int = 0
    """The oldest of these weights, also where they are mixed."""

    @property
    def length(self) -> int:
        """Prompt and response tokens so far = position of the next token."""
        return len(self.request.prompt_ids) + len(self.sampled.token_ids)

    @property
    def decodes(self) -> bool:
        """Whether all but the token sampled last is computed; otherwise it is in prefill."""
        return bool(self.sampled.token_ids) and self.held == self.length - 1

    def next_span(self, budget: int) -> Span:
        """The token sampled last, or a chunk of at most `budget` tokens of what is yet to be computed."""
        if self.decodes:
            return Span(self.held, self.sampled.token_ids[-1:])
        return Span(self.held, self.known_ids()[self.held : self.held + max(budget, 1)])

    def known_ids(self) -> list[int]:
        """Prompt and response so far."""
        return [*self.request.prompt_ids, *self.sampled.token_ids] if self.sampled else self.request.prompt_ids

    def take(self, token_id: int, logprob: float, entropy: float, version: int) -> FinishReason | None:
        """Add a sampled token; why the response ends with it, or None when it goes on."""
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
        """Return what is sampled by now, for any thread."""
        return _result(self.sampled[: len(self.sampled.cache_versions)], FinishReason.ABORT)

    def give_up_row(self) -> None:
        """What the row holds is lost."""
        self.recompute_until, self.held = max(self.recompute_until, self.held), 0

    def begin_again(self) -> None:
        """Forget what was sampled."""
        self.sampled = TokenColumns()
        self.held = min(self.held, len(self.request.prompt_ids))
        self.recompute_until = min(self.recompute_until, len(self.request.prompt_ids))

    def result(self, reason: FinishReason) -> GenerateResult:
        return _result(self.sampled, reason, self.stop_string)


def _result(sampled: TokenColumns, reason: FinishReason, stop_string: str = "") -> GenerateResult:
    """Return what was sampled as an answer, whose `cache_versions` are left out where they are the tokens' own."""
    result = GenerateResult.of(sampled, reason, stop_string)
    return replace(result, cache_versions=[]) if result.cache_versions == result.versions else result
