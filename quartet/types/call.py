"""One generation by the model: how its tokens are drawn, and which. Its per-token lists have the same length."""

from enum import StrEnum

from msgspec import Struct


class Sampling(Struct, frozen=True, kw_only=True):
    """How tokens are drawn. Recorded with every call: importance weights need it."""

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
        """Whether every token could be drawn: only then are log-probs those that a trainer computes."""
        return self.temperature > 0 and self.top_p == 1 and self.top_k == 0 and self.min_tokens == 0


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    """With a stop token, or with the token that completed a stop string."""
    LENGTH = "length"
    ABORT = "abort"


class Call(Struct, frozen=True, kw_only=True):
    """One generation by the model, recorded once and never tokenized again."""

    policy: str = "main"
    prompt_ids: list[int]  # [num_prompt_tokens]
    response_ids: list[int]  # [num_response_tokens]
    logprobs: list[float]  # [num_response_tokens], of the distribution actually sampled from, in nats
    versions: list[int]  # [num_response_tokens], policy version that sampled each token
    # Both are empty when no policy sampled the response: it was demonstrated.
    entropies: list[float] = []  # [num_response_tokens], of the whole softmax at temperature 1, in nats; or empty
    cache_versions: list[int] = []
    """`[num_response_tokens]`: the oldest version whose keys and values a token was sampled from; empty where that is
    its own."""
    sampling: Sampling
    finish_reason: FinishReason

    def __post_init__(self) -> None:
        count = len(self.response_ids)
        optional = {len(self.entropies), len(self.cache_versions)}
        if {len(self.logprobs), len(self.versions)} not in ({count}, {0}) or not optional <= {count, 0}:
            raise ValueError(
                f"a call's per-token lists differ in length: {count} ids, {len(self.logprobs)} logprobs, "
                f"{len(self.versions)} versions, {len(self.entropies)} entropies, "
                f"{len(self.cache_versions)} cache versions"
            )

    @property
    def has_logprobs(self) -> bool:
        """False for a demonstrated response, which no policy sampled."""
        return len(self.logprobs) == len(self.response_ids)
