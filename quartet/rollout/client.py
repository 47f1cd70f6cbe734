"""The model client: the one way from an agent loop to the model. It records every call, exactly as it was sampled."""

import hashlib
import math

from quartet.errors import EngineError
from quartet.rollout.engine.base import Engine, GenerateRequest, GenerateResult
from quartet.rollout.renderer import Renderer
from quartet.types import Call, FinishReason, Sampling

MAX_LOGPROB_ROUNDING = 1e-3
"""A log-prob is at most 0; this much above is rounding."""


class ModelClient:
    """One rollout's model. `calls` holds what was generated so far, also when the rollout fails later."""

    def __init__(
        self,
        engine: Engine,
        renderer: Renderer,
        *,
        sampling_seed: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        conversation: str,
        policy: str = "main",
    ) -> None:
        """`conversation` names this rollout's attempt towards the engine, uniquely."""
        self.renderer = renderer
        self.calls: list[Call] = []
        self._engine, self._conversation, self._policy = engine, conversation, policy
        self._sampling_seed, self._temperature, self._top_p = sampling_seed, temperature, top_p

    async def generate(self, prompt_ids: list[int], max_tokens: int) -> Call:
        """Sample one response and record the call.

        Raises `PromptTooLongError` when the prompt does not fit, `EngineError` when the engine fails, gave the request
        up, or answered something that cannot be a sample.
        """
        index = len(self.calls)
        sampling = Sampling(
            temperature=self._temperature,
            top_p=self._top_p,
            max_tokens=max_tokens,
            seed=call_seed(self._sampling_seed, index),
        )
        request = GenerateRequest(
            request_id=f"{self._conversation}/{index}",
            prompt_ids=prompt_ids,
            sampling=sampling,
            stop_token_ids=self.renderer.stop_token_ids,
            conversation=self._conversation,
        )
        result = await self._engine.generate(request)
        _check(request, result)
        call = Call(
            policy=self._policy,
            prompt_ids=prompt_ids,
            response_ids=result.token_ids,
            logprobs=result.logprobs,
            versions=result.versions,
            sampling=sampling,
            finish_reason=result.finish_reason,
        )
        self.calls.append(call)
        return call


def call_seed(sampling_seed: int, call_index: int) -> int:
    """Seed of one call, in [0, 2^63): a hash, so that neighbouring rollouts and calls share no random numbers."""
    digest = hashlib.blake2b(f"{sampling_seed}/{call_index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def _check(request: GenerateRequest, result: GenerateResult) -> None:
    """Raise `EngineError` for a result that must not become training data."""
    count = len(result.token_ids)
    if result.finish_reason is FinishReason.ABORT:
        problem = f"gave the request up after {count} tokens"
    elif not 1 <= count <= request.sampling.max_tokens:
        problem = f"sampled {count} tokens, asked for 1 to {request.sampling.max_tokens}"
    elif not count == len(result.logprobs) == len(result.versions):
        problem = f"sent {count} tokens, {len(result.logprobs)} log-probs and {len(result.versions)} versions"
    elif not all(math.isfinite(logprob) and logprob <= MAX_LOGPROB_ROUNDING for logprob in result.logprobs):
        problem = "sent log-probs that are none (above 0, infinite or NaN)"
    elif result.versions[0] < 0 or result.versions != sorted(result.versions):
        problem = f"sent policy versions that go backwards: {result.versions}"
    else:
        return
    raise EngineError(f"generation {request.request_id}: the engine {problem}", "the rollout is retried")
