"""Engine that samples with the forward pass of `transformers`, one request after another, without a prefix cache.

One thread samples and exchanges weights. It exchanges weights only between two responses, so all tokens of a response
have the same version. Requests wait for their turn outside the thread, so new weights wait for one response at most.
The features of a prompt's pictures are input to the first pass only; later tokens attend to them through the KV cache.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from quartet import config
from quartet.config import Publisher as PublisherChoice
from quartet.engine.base import Counters, EngineState, GenerateRequest, GenerateResult, PolicyLoad
from quartet.engine.forward import Span
from quartet.engine.loading import loaded
from quartet.engine.model_inputs import forward_arguments, inputs_of
from quartet.engine.partial import NOTHING
from quartet.engine.request_check import fitted
from quartet.engine.running import Running
from quartet.engine.sampling import sample
from quartet.engine.step_watch import StepWatch
from quartet.engine.stop_strings import StopStrings
from quartet.engine.verified_load import refusing, verify
from quartet.engine.work_thread import WorkThread
from quartet.errors import EngineError
from quartet.policy.device import usable_device
from quartet.policy.files import raising_checkpoint_errors
from quartet.policy.load import LoadedPolicy, load_policy
from quartet.policy.publisher.base import Publisher
from quartet.policy.weights import cast_weights, with_weights
from quartet.registry import build, own_settings
from quartet.types import FinishReason, Policy

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Request(Running):
    ended: bool = False
    """True once `abort` was called or the caller stopped waiting; sampling then ends at the next token."""
    turn: asyncio.Future[Literal[True]] = field(init=False)
    """Done when the request's turn has come, cancelled if it has ended before."""

    def end(self) -> None:
        """End the request at once if its turn has not come, else at the next token."""
        self.ended = True
        self.turn.cancel()


def open_transformers(recipe: config.Recipe, policy: Policy) -> "TransformersEngine":
    """Return the engine with `policy` loaded. Raises `CheckpointError` if the policy is damaged or fails its canary."""
    device = usable_device(recipe.engine.device, "engine.device")
    found = load_policy(policy.path, trust_remote_code=recipe.model.trust_remote_code)
    model: Any = found.model
    with raising_checkpoint_errors(f"cannot serve the policy in {policy.path}"):
        cast_weights(model.to(device), getattr(torch, recipe.engine.dtype))
        verify(model, Path(policy.path))
        kept = recipe.model.picture_cache_megabytes * 2**20
        return TransformersEngine(found, policy.version, recipe.engine, build(recipe.publisher), kept)


class TransformersEngine:
    """`ServedEngine` for causal language models and Qwen-VL models of `transformers`."""

    def __init__(
        self,
        policy: LoadedPolicy,
        version: int,
        config: config.Engine,
        publisher: Publisher | None = None,
        max_kept_bytes: int = 0,
    ) -> None:
        """Serve `policy` as `version`. New weights are read by the publisher, by default as whole files.
        `max_kept_bytes` limits the features of pictures in memory."""
        text = policy.model.config.get_text_config()
        positions = getattr(text, "max_position_embeddings", None) or config.max_context_tokens
        self.max_context_tokens = min(config.max_context_tokens, positions)
        self.vocab_size = text.vocab_size
        self._model: Any = policy.model
        self._tokenizer, self._version = policy.tokenizer, version
        # Logits of a whole prompt can take gigabytes. Some models in code of their own always return all.
        can_leave_out = "logits_to_keep" in signature(self._model.forward).parameters
        self._last_only = {"logits_to_keep": 1} if can_leave_out else {}
        self._make_inputs = partial(inputs_of, pictures=policy.pictures, max_kept_bytes=max_kept_bytes)
        self._inputs = self._make_inputs(policy.model)
        self._publisher: Publisher = publisher or build(PublisherChoice())
        own = own_settings(config)
        self._load_timeout_seconds, self._watch = own.load_timeout_seconds, StepWatch(own.step_timeout_seconds)
        self.counters = Counters()
        self._in_flight: dict[str, _Request] = {}
        self._turns = asyncio.Lock()
        self._closed = False
        self._thread = WorkThread("engine", partial(torch.set_num_threads, config.threads))

    @property
    def active_requests(self) -> int:
        """Number of requests that are waiting or running."""
        return len(self._in_flight)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self._model.device

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample a response.

        Raises `PromptTooLongError`, `RefusedRequestError` (with subclasses for pictures), or `EngineError`.
        """
        request = fitted(
            request,
            self._in_flight.keys(),
            vocab_size=self.vocab_size,
            max_context_tokens=self.max_context_tokens,
            has_tokenizer=True,
            reads_pictures=self._inputs.reads_pictures,
        )
        entry = _Request(request=request, finish=lambda _: None, positions_3L=self._inputs.positions(request))
        if request.stop_strings:
            entry.stop_strings = StopStrings(request.stop_strings, self._tokenizer, request.begun_ids)
        self._in_flight[request.request_id] = entry
        try:
            return await self._sampled(entry)
        finally:
            entry.end()
            del self._in_flight[request.request_id]

    def so_far(self, request_id: str) -> GenerateResult:
        """Return the tokens that a request in flight has sampled so far; the thread keeps running."""
        entry = self._in_flight.get(request_id)
        return entry.so_far() if entry else NOTHING

    async def abort(self, request_id: str) -> None:
        """End a request early; unknown ids are ignored."""
        if entry := self._in_flight.get(request_id):
            entry.end()

    async def version(self) -> int:
        """Return the version of the next response. Raises `EngineError` if the engine is closed or its forward pass
        hangs."""
        if self._closed:
            raise EngineError("the engine has stopped: it was closed", "restart the engine")
        self._watch.raise_if_hung()
        return self._version

    async def state(self) -> EngineState:
        """Return the version of the next response. One request is computed at a time, so memory is never short."""
        return EngineState(await self.version())

    async def load_policy(self, path: str | Path, version: int) -> PolicyLoad:
        """Serve the weights in folder `path` as `version` from the next response on.

        Raises `CheckpointError` if the weights are damaged, do not fit the model or fail the canary; the engine keeps
        its current weights.
        """
        folder, started = Path(path), time.perf_counter()
        model, gap, num_bytes = await loaded(lambda: self._proved(folder), timeout_seconds=self._load_timeout_seconds)
        prove_seconds, swap_started = time.perf_counter() - started, time.perf_counter()

        def serve() -> None:
            self._model, self._inputs, self._version = model, self._make_inputs(model), version

        await self._in_thread(serve)
        swap_ms = 1e3 * (time.perf_counter() - swap_started)
        return PolicyLoad(
            version=version, prove_seconds=prove_seconds, swap_ms=swap_ms, canary_gap=gap, num_bytes=num_bytes
        )

    async def close(self) -> None:
        """End the thread; requests in flight end with the tokens sampled so far. A hung thread is abandoned."""
        self._closed = True
        for entry in self._in_flight.values():
            entry.end()
        await self._thread.close(self._watch.seconds_left)

    async def _sampled(self, entry: _Request) -> GenerateResult:
        """Return the response, sampled when the request's turn comes; without tokens if the request ends before."""
        entry.turn = asyncio.ensure_future(self._turns.acquire())
        try:
            await asyncio.wait([entry.turn])
            if entry.turn.cancelled():
                return entry.so_far()
            return await self._in_thread(lambda: self._sample(entry))
        finally:
            if entry.turn.done() and not entry.turn.cancelled():
                self._turns.release()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        await self.version()
        return await self._thread.execute(work)

    @torch.no_grad()
    def _proved(self, folder: Path) -> tuple[Any, float | None, int]:
        """Return a copy of the model with the verified weights in `folder`, the canary gap in nats, if any, and the
        number of bytes read."""
        with refusing(folder), raising_checkpoint_errors("it cannot be computed"):
            tensors, num_bytes = self._publisher.read(folder)
            model = with_weights(self._model, tensors)
            return model, verify(model, folder), num_bytes

    @torch.inference_mode()
    def _sample(self, entry: _Request) -> GenerateResult:
        request, cache = entry.request, None
        self.counters.requests += 1
        self.counters.prompt_tokens += len(request.prompt_ids)
        entry.oldest_version = self._version
        while not entry.ended:
            span = self._inputs.complete(entry, Span(entry.held, entry.known_ids()[entry.held :]))
            entry.held += len(span.token_ids)
            self._watch.begins()
            try:
                output = self._model(
                    input_ids=torch.tensor([span.token_ids], device=self._model.device),
                    past_key_values=cache,
                    use_cache=True,
                    **self._last_only,
                    **forward_arguments(self._model, span),
                )
            except RuntimeError as error:  # also of memory on a GPU
                raise EngineError(
                    f"the forward pass of {len(span.token_ids)} tokens failed: {error}",
                    "if memory is short, lower engine.max_context_tokens",
                ) from error
            finally:
                self._watch.sleeps()
            cache = output.past_key_values
            self.counters.steps += 1
            if reason := self._take(entry, output.logits[:, -1]):
                return entry.result(reason)
        return entry.so_far()

    def _take(self, entry: Running, logits_1V: torch.Tensor) -> FinishReason | None:
        """Sample one token. Raises `EngineError` for logits that are not finite."""
        sampling = entry.request.sampling
        short = len(entry.sampled) < sampling.min_tokens
        drawn = sample(
            self._inputs.without_placeholders(logits_1V),
            [sampling],
            [entry.length],
            {0: entry.request.stop_token_ids} if short else {},
        )
        if not drawn.finite[0]:
            raise EngineError(
                f"the model's logits are NaN or infinite at position {entry.length}, policy version {self._version}",
                "check train/gradient_norm, and use an earlier policy: training diverged, or weights are damaged",
            )
        self.counters.generated_tokens += 1
        return entry.take(drawn.token_ids[0], drawn.logprobs[0], drawn.entropies[0], self._version)
