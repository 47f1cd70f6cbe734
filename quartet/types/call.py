"""Call: one generation by the model, with its sampling settings and its tokens."""

from enum import StrEnum

from msgspec import Struct

from quartet.types.picture import Media
from quartet.types.prompt import Prompt
from quartet.types.tokens import TokenColumns

MAIN = "main"
"""Name of the policy in a run whose recipe names no policies."""
LARGEST_TEMPERATURE = 1e3
"""Bound of sampling temperatures, of recipes and of records."""


class Sampling(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling settings. Recorded with every call, since importance weights need them."""

    temperature: float = 1.0
    """Sampling temperature; 0 means greedy. Temperature is applied before top-k, and top-k before top-p."""
    top_k: int = 0
    """Number of most likely tokens that can be drawn; tokens that tie with the last of them can be drawn too. 0 means
    all."""
    top_p: float = 1.0
    """Nucleus sampling: draw only from the smallest set of most likely tokens whose probabilities sum to at least this;
    1 means all tokens."""
    min_tokens: int = 0
    """Minimum length of a response: its first `min_tokens` tokens cannot be stop tokens."""
    max_tokens: int = 32
    seed: int = 0
    """Seed of the draws. Each draw depends on the seed and the token's position only, so that a request samples the
    same tokens in any batch."""

    @property
    def whole(self) -> bool:
        """True if every token could be drawn. Otherwise the log-probs differ from those that a trainer computes."""
        return self.temperature > 0 and self.top_p == 1 and self.top_k == 0 and self.min_tokens == 0


class FinishReason(StrEnum):
    """Reason for the end of a generation."""

    STOP = "stop"
    """A stop token was drawn, or a token that completed a stop string."""
    LENGTH = "length"
    ABORT = "abort"


class Call(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One generation by the model, recorded once and never tokenized again."""

    key: str = ""
    """Unique name of the call within its trajectory; empty for a demonstrated call. The engine's request id and the
    call's seed are derived from the key, and a retry uses it to find the call of an earlier attempt."""
    policy: str = MAIN
    """The policy that sampled the response."""
    prompt_ids: list[int]  # [num_prompt_tokens]
    train_prompt_ids: list[int] = []
    """Prompt used in training instead of `prompt_ids`, for example without guidance that was added for sampling. Empty
    if both are the same."""
    response: TokenColumns
    borrowed: int = 0
    """Number of leading tokens, of prompt and response together, that belong to a parent rollout. They are context for
    this rollout and are trained in the parent only."""
    media: list[Media] = []
    """Pictures of the prompt, in the order of their placeholders."""
    sampling: Sampling
    finish_reason: FinishReason

    def __post_init__(self) -> None:
        if mismatch := self.response.mismatch:
            raise ValueError(f"the columns of a call's response differ in length: {mismatch}")

    @property
    def prompt(self) -> Prompt:
        """The prompt, with its pictures by reference."""
        return Prompt(self.prompt_ids, self.media)

    @property
    def trained_prompt_ids(self) -> list[int]:
        """The prompt that precedes the response in training."""
        return self.train_prompt_ids or self.prompt_ids

    @property
    def own_response(self) -> TokenColumns:
        """The tokens of the response that do not belong to a parent rollout."""
        borrowed = self.borrowed - len(self.prompt_ids)
        return self.response[borrowed:] if borrowed > 0 else self.response

    @property
    def response_ids(self) -> list[int]:
        """Token ids of the response, `[num_response_tokens]`."""
        return self.response.token_ids
