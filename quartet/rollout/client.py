"""The model client: the one way from an agent loop to the model. It records every call, exactly as it was sampled."""

import hashlib
from collections.abc import Sequence

from msgspec.structs import replace

from quartet.errors import EngineError, RecalledError
from quartet.rollout.engine.base import Engine, GenerateRequest, GenerateResult
from quartet.rollout.engine.partial import rest_of
from quartet.rollout.engine.result_check import find_problem
from quartet.rollout.renderer import Renderer
from quartet.types import Call, FinishReason, Sampling, TokenColumns


class ModelClient:
    """One rollout's model. `calls` holds what was generated so far, also when the rollout fails later."""

    def __init__(
        self,
        engine: Engine,
        renderer: Renderer,
        *,
        sampling: Sampling,
        stop_strings: Sequence[str] = (),
        conversation: str,
        policy: str = "main",
        for_training: bool = True,
        partial: Sequence[Call] = (),
    ) -> None:
        """`sampling` has the rollout's seed; every call gets its own from it, and its own `max_tokens`.

        `conversation` names this rollout's attempt towards the engine, uniquely. What is sampled `for_training` must
        have log-probs and versions; an evaluation does without.

        `partial` is what an earlier attempt of the rollout had sampled when it was recalled. It answers for the engine
        as long as the prompts are the same, token for token; its last call may be cut and is then gone on with.
        """
        self.renderer = renderer
        self.calls: list[Call] = []
        self.recalled = self.diverged = False
        self._engine, self._conversation, self._policy = engine, conversation, policy
        self._sampling, self._stop_strings, self._for_training = sampling, list(stop_strings), for_training
        self._partial = list(partial)
        self._in_flight: set[str] = set()

    @property
    def sampled(self) -> list[Call]:
        """All calls so far, and after them what of `partial` was not asked for again."""
        return self.calls + self._partial[len(self.calls) :]

    async def generate(self, prompt_ids: list[int], max_tokens: int) -> Call:
        """Sample one response and record the call.

        Raises `PromptTooLongError` when the prompt does not fit, `RecalledError` after `recall`, `EngineError` when the
        engine fails, gave the request up, or answered something that cannot be a sample.
        """
        if self.recalled:
            raise RecalledError("the rollout was recalled between two turns")
        index, known = len(self.calls), self._known(prompt_ids)
        if known is not None and known.finish_reason is not FinishReason.ABORT:
            self.calls.append(known)
            return known
        sampling = replace(self._sampling, max_tokens=max_tokens, seed=call_seed(self._sampling.seed, index))
        request = GenerateRequest(
            request_id=f"{self._conversation}/{index}",
            prompt_ids=prompt_ids,
            sampling=sampling,
            stop_token_ids=self.renderer.stop_token_ids,
            stop_strings=self._stop_strings,
            conversation=self._conversation,
        )
        sampled = known.response if known else TokenColumns()
        result = sampled + await self._ask(rest_of(request, sampled))
        call = Call(
            policy=self._policy,
            prompt_ids=prompt_ids,
            response=result.tokens,
            sampling=sampling,
            finish_reason=result.finish_reason,
        )
        if call.finish_reason is FinishReason.ABORT:
            self._partial = [*self.calls, call]
            raise RecalledError(f"the rollout was recalled after {len(call.response_ids)} tokens of a response")
        self.calls.append(call)
        return call

    async def recall(self) -> None:
        """Stop at the next token, or when an environment step in progress has ended: `generate` then raises.

        It may be repeated, for a request that had not reached the engine yet. Raises `EngineError` when the engine
        cannot be reached; `generate` does so too.
        """
        self.recalled = True
        for request_id in list(self._in_flight):
            await self._engine.abort(request_id)

    def _known(self, prompt_ids: list[int]) -> Call | None:
        """The next call of the partial, or None. When the prompt is another one, the rest of it is of no use."""
        rest = self._partial[len(self.calls) :]
        if rest and rest[0].prompt_ids != prompt_ids:
            self.diverged, self._partial = True, []
            return None
        return rest[0] if rest else None

    async def _ask(self, request: GenerateRequest) -> GenerateResult:
        """Raises `EngineError` for a result that must not become a call."""
        self._in_flight.add(request.request_id)
        try:
            result = await self._engine.generate(request)
        finally:
            self._in_flight.discard(request.request_id)
        problem = find_problem(request, result)
        if self._for_training and result and not result.logprobs:
            problem = problem or "told no log-probs and versions, which training needs"
        if result.finish_reason is FinishReason.ABORT and not self.recalled:
            problem = f"gave the request up after {len(result.token_ids)} tokens"
        if problem:
            raise EngineError(f"generation {request.request_id}: the engine {problem}", "the rollout is retried")
        return result


def call_seed(sampling_seed: int, call_index: int) -> int:
    """Seed of one call, in [0, 2^63): a hash, so that neighbouring rollouts and calls share no random numbers."""
    digest = hashlib.blake2b(f"{sampling_seed}/{call_index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1
