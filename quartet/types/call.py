"""One generation by the model: how its tokens are drawn, and which."""

from enum import StrEnum

from msgspec import Struct

from quartet.types.picture import Media
from quartet.types.prompt import Prompt
from quartet.types.tokens import TokenColumns

MAIN = "main"
"""The policy of a run whose recipe names none."""


class Sampling(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling settings. Recorded with every call, since importance weights need them."""

    temperature: float = 1.0
    """0 means greedy. Applied before top-k, and top-k before top-p."""
    top_k: int = 0
    """Only this many most likely tokens can be drawn, and those as likely as the last of them; 0 means all."""
    top_p: float = 1.0
    """Only the most likely tokens can be drawn, as many as it takes for their mass to reach this."""
    min_tokens: int = 0
    """None of the first this many tokens ends the response: until then stop tokens cannot be drawn."""
    max_tokens: int = 32
    seed: int = 0
    """With the token's position this seeds the draw, so a request samples the same whatever else is in its batch."""

    @property
    def whole(self) -> bool:
        """Return whether every token could be drawn. Only then do log-probs equal those that a trainer computes."""
        return self.temperature > 0 and self.top_p == 1 and self.top_k == 0 and self.min_tokens == 0


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    """With a stop token, or with the token that completed a stop string."""
    LENGTH = "length"
    ABORT = "abort"


class Call(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One generation by the model, recorded once and never tokenized again."""

    key: str = ""
    """Unique name of the call within its trajectory; its request, its seed and its partial go by it. Empty for a
    demonstrated call."""
    policy: str = MAIN
    """The policy that sampled the response."""
    prompt_ids: list[int]  # [num_prompt_tokens]
    train_prompt_ids: list[int] = []
    """Prompt that is trained in place of `prompt_ids`, for example without the guidance that sampling was given; empty
    where they are the same."""
    response: TokenColumns
    borrowed: int = 0
    """So many leading tokens of prompt and response belong to a parent: read as context, trained there and not here."""
    media: list[Media] = []
    """Pictures of the prompt, in its order."""
    sampling: Sampling
    finish_reason: FinishReason

    def __post_init__(self) -> None:
        if mismatch := self.response.mismatch:
            raise ValueError(f"the columns of a call's response differ in length: {mismatch}")

    @property
    def prompt(self) -> Prompt:
        """Pictures of the prompt, by reference."""
        return Prompt(self.prompt_ids, self.media)

    @property
    def trained_prompt_ids(self) -> list[int]:
        """The prompt that stands before the response in training."""
        return self.train_prompt_ids or self.prompt_ids

    @property
    def own_response(self) -> TokenColumns:
        """Return the part of the response that is not borrowed."""
        borrowed = self.borrowed - len(self.prompt_ids)
        return self.response[borrowed:] if borrowed > 0 else self.response

    @property
    def response_ids(self) -> list[int]:
        """`[num_response_tokens]`."""
        return self.response.token_ids
