"""The model client: the one way from an agent loop to the model. It records every call, exactly as it was sampled."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from msgspec.structs import replace

from quartet.engine.base import Engine, GenerateRequest, GenerateResult
from quartet.engine.partial import rest_of
from quartet.engine.result_check import find_problem
from quartet.errors import DivergedError, EngineError, PictureMissingError, RecalledError
from quartet.policy.renderer import Renderer
from quartet.types import MAIN, Call, FinishReason, Prompt, Sampling, TokenColumns

OnCall = Callable[[Call, Sequence[Call]], Awaitable[None]]


def nothing(*_: object) -> None:
    """Take no notice of a call."""


class Model(NamedTuple):
    """A policy as rollouts reach it."""

    engine: Engine
    renderer: Renderer


class ModelClient:
    """One rollout's access to a policy. `calls` holds what was generated so far, also when the rollout fails later."""

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
        partial: Sequence[Call] = (),
        on_call: OnCall | None = None,
        on_diverged: Callable[[], None] = nothing,
    ) -> None:
        """`sampling` has the rollout's seed; every call gets its own from it, and its own `max_tokens`.

        `conversation` names this rollout's attempt towards the engine, uniquely. What is sampled `for_training` must
        have log-probs and versions; an evaluation does without.

        `partial` is what an earlier attempt of the rollout had sampled when it was recalled. It answers for the engine
        as long as the prompts are the same, token for token; its last call may be cut and is then gone on with. Calls
        that are `borrowed` are those of a parent: then another prompt is a `DivergedError`.

        `on_call` is given each call that was sampled here to its end, and the calls before it, before the loop goes on;
        `on_diverged` is called when an attempt leaves the way of the one before it.
        """
        self.renderer = renderer
        self.calls: list[Call] = []
        self.recalled = self.diverged = False
        self.policy = policy
        """Its name; every call has it."""
        self._engine, self._conversation = engine, conversation
        self._sampling, self._stop_strings, self._for_training = sampling, list(stop_strings), for_training
        self._partial = {call.key: call for call in partial}
        self._on_call, self._on_diverged = on_call, on_diverged
        self._keys: set[str] = set()
        self._pictures: dict[str, bytes] = {}  # by content hash, all that prompts have shown
        self._in_flight: dict[str, asyncio.Future[None]] = {}  # by request id

    @property
    def sampled(self) -> list[Call]:
        """All calls so far, and after them what of `partial` was not asked for again."""
        return [*self.calls, *self._partial.values()]

    @property
    def has_unasked_calls_of_its_parent(self) -> bool:
        """Return whether a child still repeats the calls of its parent."""
        return any(call.borrowed for call in self._partial.values())

    def index_of(self, call: Call) -> int:
        """Return the place of a call in `calls`, which are in the order of their ends."""
        return next(index for index, known in enumerate(self.calls) if known.key == call.key)

    async def generate(self, prompt: Prompt | list[int], max_tokens: int, *, key: str | None = None) -> Call:
        """Sample one response to a prompt, or to token ids alone, and record the call. Several may be at work at once.

        `key` names the call within the rollout, the same in every attempt; without one it is the number of calls asked
        for before. Raises `ValueError` for a key that was used already, `PromptTooLongError` for a prompt that does not
        fit, `PictureMissingError` for one with a picture that was never shown here, `RecalledError` after `recall`,
        `EngineError` when the engine fails, gave the request up, or answered something that cannot be a sample.
        """
        if self.recalled:
            raise RecalledError("the rollout was recalled between two turns")
        key = self._new_key(key)
        prompt = prompt if isinstance(prompt, Prompt) else Prompt(prompt)
        self._pictures |= prompt.pictures  # of known calls too: later prompts go on from them
        known = self._known(key, prompt)
        if known is not None and known.finish_reason is not FinishReason.ABORT:
            self._record(known)
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
            call = await self._sample(request, key, known)
        if call.finish_reason is FinishReason.ABORT:
            if self._in_flight:  # whoever catches the error must find what the other calls had, too
                await asyncio.wait(self._in_flight.values())
            raise RecalledError(f"the rollout was recalled after {len(call.response_ids)} tokens of a response")
        if self._on_call is not None:
            await self._on_call(call, [earlier for earlier in self.calls if earlier is not call])
        return call

    async def _sample(self, request: GenerateRequest, key: str, known: Call | None) -> Call:
        """Sample the rest of a response, and record the call."""
        begun = known.response if known else TokenColumns()
        result = begun + await self._ask(rest_of(request, begun))
        call = Call(
            key=key,
            policy=self.policy,
            prompt_ids=request.prompt_ids,
            media=request.media,
            response=result.tokens,
            borrowed=known.borrowed if known else 0,
            sampling=request.sampling,
            finish_reason=result.finish_reason,
        )
        self._record(call)
        return call

    def _record(self, call: Call) -> None:
        """Keep a whole call among the calls, and one that was cut as a partial."""
        if call.finish_reason is FinishReason.ABORT:
            self._partial[call.key] = call
        else:
            self._partial.pop(call.key, None)
            self.calls.append(call)

    async def recall(self) -> None:
        """Stop at the next token, or when an environment step in progress has ended: `generate` then raises.

        It may be repeated, for a request that had not reached the engine yet. Raises `EngineError` when the engine
        cannot be reached; `generate` does so too.
        """
        self.recalled = True
        await asyncio.gather(*(self._engine.abort(request_id) for request_id in self._in_flight))

    def _new_key(self, key: str | None) -> str:
        key = str(len(self._keys)) if key is None else key
        if not key or key in self._keys:
            raise ValueError(f"generate(key={key!r}): a rollout's calls have different keys, none of them empty")
        self._keys.add(key)
        return key

    def _pictures_of(self, prompt: Prompt) -> dict[str, bytes]:
        """Return all pictures of a prompt, also those that earlier turns of the conversation have shown."""
        wanted = {one.content_hash for one in prompt.media}
        if missing := wanted - self._pictures.keys():
            raise PictureMissingError(
                f"a prompt refers to the picture {min(missing)}, which the rollout has not shown",
                "build prompts with `renderer.start_chat` and `extend_chat`, from the calls of the same rollout",
            )
        return {content_hash: self._pictures[content_hash] for content_hash in wanted}

    def _known(self, key: str, prompt: Prompt) -> Call | None:
        """Return a call of the partial, or None. When the prompt is another one, the rest of it is of no use."""
        known = self._partial.get(key)
        if known is not None and (known.prompt_ids, known.media) != (prompt.ids, prompt.media):
            if known.borrowed:
                raise DivergedError(f"call {key!r} has another prompt than that of the parent, after the same actions")
            self.diverged, self._partial = True, {}
            self._on_diverged()
            return None
        return known

    @contextmanager
    def _flight(self, request_id: str) -> Iterator[None]:
        """Note that a request is on its way until the block ends."""
        landed = self._in_flight[request_id] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._in_flight[request_id]
            landed.set_result(None)

    async def _ask(self, request: GenerateRequest) -> GenerateResult:
        """Raises `EngineError` for a result that must not become a call."""
        result = await self._engine.generate(request)
        problem = find_problem(request, result)
        if self._for_training and result and not result.logprobs:
            problem = problem or "told no log-probs and versions, which training needs"
        if result.finish_reason is FinishReason.ABORT and not self.recalled:
            problem = f"gave the request up after {len(result.token_ids)} tokens"
        if problem:
            raise EngineError(f"generation {request.request_id}: the engine {problem}", "the rollout is retried")
        return result


def call_seed(sampling_seed: int, key: str) -> int:
    """Seed of one call, in [0, 2^63): a hash, so that neighbouring rollouts and calls share no random numbers."""
    digest = hashlib.blake2b(f"{sampling_seed}/{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1
