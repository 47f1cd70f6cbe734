"""One request in the engine: what its row holds, what it needs next, what was sampled, and when it ends."""

from collections.abc import Callable
from dataclasses import dataclass, field

from quartet.errors import EngineError
from quartet.rollout.engine.base import GenerateRequest, GenerateResult
from quartet.rollout.engine.forward import Span
from quartet.rollout.engine.partial import cut
from quartet.rollout.engine.stop_strings import StopStrings
from quartet.types import FinishReason


@dataclass(slots=True, eq=False)
class Running:
    """A request that waits or runs."""

    request: GenerateRequest
    """Fits the context."""
    finish: Callable[[GenerateResult | EngineError], None]
    """Called once, in the step thread."""
    stop_strings: StopStrings | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    cache_versions: list[int] = field(default_factory=list)
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
        return len(self.request.prompt_ids) + len(self.token_ids)

    @property
    def decodes(self) -> bool:
        """Whether all but the token sampled last is computed; otherwise it is in prefill."""
        return bool(self.token_ids) and self.held == self.length - 1

    def next_span(self, budget: int) -> Span:
        """The token sampled last, or a chunk of at most `budget` tokens of what is yet to be computed."""
        if self.decodes:
            return Span(self.held, self.token_ids[-1:])
        return Span(self.held, self.known_ids()[self.held : self.held + max(budget, 1)])

    def known_ids(self) -> list[int]:
        """Prompt and response so far."""
        return [*self.request.prompt_ids, *self.token_ids] if self.token_ids else self.request.prompt_ids

    def take(self, token_id: int, logprob: float, entropy: float, version: int) -> FinishReason | None:
        """Add a sampled token; why the response ends with it, or None when it goes on."""
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        self.entropies.append(entropy)
        self.versions.append(version)
        self.cache_versions.append(min(self.oldest_version, version))
        if token_id in self.request.stop_token_ids:
            return FinishReason.STOP
        if self.stop_strings is not None and len(self.token_ids) > self.request.sampling.min_tokens:
            self.stop_string = self.stop_strings.completed(self.token_ids)
            if self.stop_string:
                return FinishReason.STOP
        return FinishReason.LENGTH if len(self.token_ids) == self.request.sampling.max_tokens else None

    def so_far(self) -> GenerateResult:
        """What is sampled by now, for any thread: `take` adds to `cache_versions` last."""
        return cut(self.result(FinishReason.ABORT), 0, len(self.cache_versions))

    def give_up_row(self) -> None:
        """What the row holds is lost."""
        self.recompute_until, self.held = max(self.recompute_until, self.held), 0

    def begin_again(self) -> None:
        """Forget what was sampled."""
        self.token_ids, self.logprobs, self.entropies, self.versions, self.cache_versions = [], [], [], [], []
        self.held = min(self.held, len(self.request.prompt_ids))
        self.recompute_until = min(self.recompute_until, len(self.request.prompt_ids))

    def result(self, reason: FinishReason) -> GenerateResult:
        return GenerateResult(
            token_ids=self.token_ids,
            logprobs=self.logprobs,
            entropies=self.entropies,
            versions=self.versions,
            cache_versions=[] if self.cache_versions == self.versions else self.cache_versions,
            finish_reason=reason,
            stop_string=self.stop_string,
        )
