"""Model client: an agent loop's only access to the model. It records the exact tokens of every call."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from msgspec.structs import replace

from quartet.engine.base import Engine, GenerateRequest, GenerateResult
from quartet.engine.partial import rest_of
from quartet.engine.result_check import find_problem
from quartet.errors import DivergedError, EngineError, PictureMissingError, PromptTooLongError, RecalledError
from quartet.on_progress import no_progress
from quartet.policy.renderer import Renderer
from quartet.types import MAIN, Call, FinishReason, Prompt, Sampling, TokenColumns

OnCall = Callable[[Call, Sequence[Call]], Awaitable[None]]


class Model(NamedTuple):
    """Access to one policy for all rollouts of a worker."""

    engine: Engine
    renderer: Renderer


class ModelClient:
    """One rollout's access to a policy. `calls` has the calls generated so far, also if the rollout fails later."""

    def __init__(
        self,
        engine: Engine,
        renderer: Renderer,
        *,
        sampling: Sampling,
        stop_strings: Sequence[str] = (),
        conversation: str,
        policy: str = MAIN,
        for_training: bool = True,
        frozen: bool = False,
        partial: Sequence[Call] = (),
        on_call: OnCall | None = None,
        on_diverged: Callable[[], None] = no_progress,
    ) -> None:
        """Make the client of one attempt at a rollout.

        `sampling` contains the rollout's seed; each call derives its own seed from it, and sets its own `max_tokens`.
        `conversation` is a unique name of the attempt for the engine. Calls sampled `for_training` must have log-probs
        and versions; calls of an evaluation need neither. A prompt of a `frozen` policy that does not fit is an
        `EngineError`: the policy that is trained or evaluated is not to blame.

        `partial` contains the calls that earlier attempts had sampled. A call of `partial` is returned instead of a new
        sample if its prompt is the same, token for token; a call that was cut is continued, perhaps by an older policy
        version, since each token records its own. A `borrowed` call comes from the parent rollout, and another prompt
        for it raises `DivergedError`.

        For each call that was sampled here and not aborted, `on_call` receives the call and the calls before it; then
        `generate` returns. `on_diverged` is called when a prompt differs from that of the earlier attempt.
        """
        self.renderer = renderer
        self.calls: list[Call] = []
        self.recalled = self.diverged = False
        self.continued_calls = 0
        """Number of complete calls of earlier attempts that were not sampled again."""
        self.policy = policy
        """Name of the policy, which every call records."""
        self._engine, self._conversation = engine, conversation
        self._sampling, self._stop_strings = sampling, list(stop_strings)
        self._for_training, self._frozen = for_training, frozen
        self._partial = {call.key: call for call in partial}
        self._on_call, self._on_diverged = on_call, on_diverged
        self._keys: set[str] = set()
        self._pictures: dict[str, bytes] = {}  # all pictures of prompts so far, by content hash
        self._in_flight: dict[str, asyncio.Future[None]] = {}  # by request id

    @property
    def sampled(self) -> list[Call]:
        """All complete calls so far, then the remaining ones of the partial: calls that were not requested again or
        were aborted."""
        return [*self.calls, *self._partial.values()]

    @property
    def has_unasked_calls_of_its_parent(self) -> bool:
        """True while a child still repeats the calls of its parent."""
        return any(call.borrowed for call in self._partial.values())

    def index_of(self, call: Call) -> int:
        """Return the index of a call in `calls`, which are in the order in which they ended."""
        return next(index for index, known in enumerate(self.calls) if known.key == call.key)

    async def generate(self, prompt: Prompt | list[int], max_tokens: int, *, key: str | None = None) -> Call:
        """Sample one response to a prompt, or to token ids alone, and record the call. Calls may run concurrently.

        `key` is the name of the call within the rollout; it must be the same in every attempt. The default is the
        number of earlier calls. Raises `ValueError` for a key that was used already, `PromptTooLongError` for a prompt
        that does not fit, `PictureMissingError` for a picture that the rollout has not shown, `DivergedError` for a
        `borrowed` call with another prompt, `RecalledError` after `recall`, and `EngineError` if the engine fails,
        abandons the request, or returns an invalid sample.
        """
        if self.recalled:
            raise RecalledError("the rollout was recalled between two turns")
        key = self._new_key(key)
        prompt = prompt if isinstance(prompt, Prompt) else Prompt(prompt)
        self._pictures |= prompt.pictures  # also of known calls, since later prompts extend them
        known = self._known(key, prompt)
        if known is not None and known.finish_reason is not FinishReason.ABORT:
            self._record(known)
            self.continued_calls += not known.borrowed
            return known
        sampling = replace(self._sampling, max_tokens=max_tokens, seed=call_seed(self._sampling.seed, key))
        request = GenerateRequest(
            request_id=f"{self._conversation}/{key}",
            prompt_ids=prompt.ids,
            media=prompt.media,
            pictures=self._pictures_of(prompt),
            sampling=sampling,
            stop_token_ids=self.renderer.stop_token_ids,
            stop_strings=self._stop_strings,
            conversation=self._conversation,
        )
        with self._flight(request.request_id):
            call = await self._sample(request, key, prompt.train_ids, known)
        if call.finish_reason is FinishReason.ABORT:
            if self._in_flight:  # the record of the recalled attempt must have the tokens of the other calls, too
                await asyncio.wait(self._in_flight.values())
            raise RecalledError(f"the rollout was recalled after {len(call.response_ids)} tokens of a response")
        if self._on_call is not None:
            await self._on_call(call, [earlier for earlier in self.calls if earlier is not call])
        return call

    async def _sample(
        self, request: GenerateRequest, key: str, train_prompt_ids: list[int], known: Call | None
    ) -> Call:
        """Sample the rest of a response, and record the call."""
        begun = known.response if known else TokenColumns()
        result = begun + await self._ask(rest_of(request, begun))
        call = Call(
            key=key,
            policy=self.policy,
            prompt_ids=request.prompt_ids,
            train_prompt_ids=train_prompt_ids,
            media=request.media,
            response=result.tokens,
            borrowed=known.borrowed if known else 0,
            sampling=request.sampling,
            finish_reason=result.finish_reason,
        )
        self._record(call)
        return call

    def _record(self, call: Call) -> None:
        """Store a complete call in `calls`, and a call that was aborted in the partial."""
        if call.finish_reason is FinishReason.ABORT:
            self._partial[call.key] = call
        else:
            self._partial.pop(call.key, None)
            self.calls.append(call)

    async def recall(self) -> None:
        """Abort requests in flight; `generate` then raises `RecalledError`.

        Call it again for a request that had not reached the engine yet. Raises `EngineError` if the engine cannot be
        reached; `generate` then raises it, too.
        """
        self.recalled = True
        await asyncio.gather(*(self._engine.abort(request_id) for request_id in self._in_flight))

    def _new_key(self, key: str | None) -> str:
        key = str(len(self._keys)) if key is None else key
        if not key or key in self._keys:
            raise ValueError(f"generate(key={key!r}): give each call of a rollout its own key, which must not be empty")
        self._keys.add(key)
        return key

    def _pictures_of(self, prompt: Prompt) -> dict[str, bytes]:
        """Return all pictures of a prompt, also pictures that earlier turns of the conversation have shown."""
        wanted = {one.content_hash for one in prompt.media}
        if missing := wanted - self._pictures.keys():
            raise PictureMissingError(
                f"a prompt refers to the picture {min(missing)}, which the rollout has not shown",
                "build prompts with `renderer.start_chat` and `extend_chat`, from the calls of the same rollout",
            )
        return {content_hash: self._pictures[content_hash] for content_hash in wanted}

    def _known(self, key: str, prompt: Prompt) -> Call | None:
        """Return the call of the partial with this key and prompt, or None.

        If the prompt differs, the remaining calls of the partial are dropped, or `DivergedError` is raised if the call
        is borrowed.
        """
        known = self._partial.get(key)
        if known is not None and (known.prompt_ids, known.media) != (prompt.ids, prompt.media):
            if known.borrowed:
                raise DivergedError(
                    f"the prompt of call {key!r} differs from that of the same call in the parent rollout, after the "
                    "same actions"
                )
            self.diverged, self._partial = True, {}
            self._on_diverged()
            return None
        return known

    @contextmanager
    def _flight(self, request_id: str) -> Iterator[None]:
        """Register a request as in flight until the block ends."""
        landed = self._in_flight[request_id] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._in_flight[request_id]
            landed.set_result(None)

    async def _ask(self, request: GenerateRequest) -> GenerateResult:
        """Return the engine's result. Raises `EngineError` if the result must not become a call."""
        try:
            result = await self._engine.generate(request)
        except PromptTooLongError as error:
            if not self._frozen:
                raise
            raise EngineError(f"the frozen policy {self.policy!r}: {error.what}", error.advice) from error
        problem = find_problem(request, result)
        if self._for_training and result and not result.logprobs:
            problem = problem or "returned no log-probs and versions, which training needs"
        if result.finish_reason is FinishReason.ABORT and not self.recalled:
            problem = f"aborted the request after {len(result.token_ids)} tokens"
        if problem:
            raise EngineError(
                f"generation {request.request_id}: the engine {problem}", "see the engine's log if this repeats"
            )
        return result


def call_seed(sampling_seed: int, key: str) -> int:
    """Return the seed of one call, in [0, 2^63): a hash, so that random numbers of different calls are unrelated."""
    digest = hashlib.blake2b(f"{sampling_seed}/{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1
