"""Embedded engine: one PyTorch model, one step thread, continuous batching.

The asyncio side puts commands (request, abort, new weights) into a queue and awaits their futures; the step thread
executes them between two decode steps. New weights may therefore arrive while requests are in flight: tokens sampled
before the swap have the old version, tokens sampled after it the new one. The setting
`engine.kv_cache_on_weight_update` decides whether the KV cache of requests in flight is recomputed, so that each token
depends on one version only, or kept. Many RL systems keep it: the trainer's importance weights account for the mix, and
no token is computed twice.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from quartet import config
from quartet.config import Publisher as PublisherChoice
from quartet.engine.backend.torch import Torch
from quartet.engine.base import EngineState, GenerateRequest, GenerateResult, PolicyLoad
from quartet.engine.choose_forward import make_forward
from quartet.engine.loading import loaded
from quartet.engine.model_inputs import TextInputs, inputs_of
from quartet.engine.partial import NOTHING
from quartet.engine.request_check import fitted
from quartet.engine.running import Running
from quartet.engine.scheduler import Scheduler
from quartet.engine.step_watch import StepWatch
from quartet.engine.stop_strings import StopStrings
from quartet.engine.verified_load import prove_weights, replace_weights, verify
from quartet.errors import CheckpointError, EngineError
from quartet.native.memory_allocator import keep_freed_memory
from quartet.policy.device import usable_device
from quartet.policy.files import raising_checkpoint_errors
from quartet.policy.load import load_policy
from quartet.policy.publisher.base import Publisher
from quartet.policy.weights import cast_weights
from quartet.registry import build, own_settings
from quartet.types import Policy


def open_torch(recipe: config.Recipe, policy: Policy) -> "TorchEngine":
    """Return the embedded engine with `policy` loaded.

    Raises `CheckpointError` if the policy is damaged or fails its canary.
    """
    device = usable_device(recipe.engine.device, "engine.device")
    loaded = load_policy(policy.path, trust_remote_code=recipe.model.trust_remote_code)
    model: Any = loaded.model
    with raising_checkpoint_errors(f"cannot serve the policy in {policy.path}"):
        cast_weights(model.to(device), getattr(torch, recipe.engine.dtype))
        verify(model, Path(policy.path))
        inputs = inputs_of(model, loaded.pictures, recipe.model.picture_cache_megabytes * 2**20)
        return TorchEngine(model, policy.version, recipe.engine, loaded.tokenizer, build(recipe.publisher), inputs)


class TorchEngine:
    """`ServedEngine` for any causal language model with full attention, and for Qwen-VL models."""

    def __init__(
        self,
        model: PreTrainedModel,
        version: int,
        config: config.Engine,
        tokenizer: PreTrainedTokenizerBase | None = None,
        publisher: Publisher | None = None,
        inputs: TextInputs | None = None,
    ) -> None:
        """Start the step thread. `tokenizer` decodes text for stop strings; without it, requests with stop strings
        raise `RefusedRequestError`, as do requests with pictures without `inputs` for them. New weights are read by the
        publisher, by default as whole files."""
        own: Torch.Settings = own_settings(config)
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.max_context_tokens = min(config.max_context_tokens, positions or config.max_context_tokens)
        keep_freed_memory()
        forward = make_forward(model, config.max_slots, self.max_context_tokens)
        self.vocab_size = forward.vocab_size
        self._model, self._tokenizer = model, tokenizer
        self._publisher: Publisher = publisher or build(PublisherChoice())
        self._recompute = config.kv_cache_on_weight_update == "recompute"
        max_prefix_bytes, max_row_bytes = config.prefix_cache_megabytes * 2**20, own.kv_cache_megabytes * 2**20
        self._inputs = inputs or TextInputs()
        self._scheduler = Scheduler(forward, self._inputs, config.max_slots, version, max_prefix_bytes, max_row_bytes)
        self.counters = self._scheduler.counters
        self.forward = forward
        """The forward pass; only the step thread calls it."""
        self._in_flight: dict[str, Running] = {}
        self._load_timeout_seconds = own.load_timeout_seconds
        self._watch = StepWatch(own.step_timeout_seconds)
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._closing = self._ended = False
        self._cause: BaseException | None = None
        # Daemon thread: an engine that was not closed must not keep the process alive.
        self._thread = Thread(target=self._run_steps, args=[config.threads], name="engine-steps", daemon=True)
        self._thread.start()

    @property
    def active_requests(self) -> int:
        """Number of requests that are waiting or running."""
        return len(self._in_flight)

    @property
    def queued_commands(self) -> int:
        """Number of commands that the step thread has not begun."""
        return self._commands.qsize()

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self._model.device

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample a response.

        Raises `PromptTooLongError`, `RefusedRequestError`, or `EngineError` if the engine failed or has stopped.
        """
        done: Future[GenerateResult] = Future()
        # A cancelled waiter must not cancel the future while the step thread uses it.
        done.set_running_or_notify_cancel()
        entry = self._running(request, done)
        self._in_flight[request.request_id] = entry
        try:
            self._send(lambda: self._scheduler.add(entry))
            return await asyncio.wrap_future(done)
        except asyncio.CancelledError:
            self._commands.put(lambda: self._scheduler.abort(request.request_id))
            raise
        finally:
            del self._in_flight[request.request_id]

    def so_far(self, request_id: str) -> GenerateResult:
        """Return the tokens that a request in flight has sampled so far; the step thread keeps running."""
        entry = self._in_flight.get(request_id)
        return entry.so_far() if entry else NOTHING

    async def abort(self, request_id: str) -> None:
        """End a request early; unknown ids are ignored."""
        self._send(lambda: self._scheduler.abort(request_id))

    async def version(self) -> int:
        """Return the version of the next sampled token. Raises `EngineError` if the step thread has ended or hangs."""
        self._raise_if_ended()
        self._watch.raise_if_hung()
        return self._scheduler.version

    async def state(self) -> EngineState:
        """Return the version of the next sampled token, and the use of the KV cache. Raises the errors of `version`."""
        return EngineState(await self.version(), self._scheduler.cache_use(list(self._in_flight.values())))

    async def load_policy(self, path: str | Path, version: int) -> PolicyLoad:
        """Serve the weights in folder `path` as `version` from the next decode step on.

        Raises `CheckpointError` if the weights are damaged, do not fit the model or fail the canary; the engine keeps
        its current weights. Raises `EngineError` if reading them times out or a step hangs. Any other error during the
        swap ends the engine, because the model's weights are then unknown.
        """
        started = time.perf_counter()
        proved = await loaded(
            lambda: prove_weights(self._model, self.forward, Path(path), self._publisher),
            timeout_seconds=self._load_timeout_seconds,
        )
        prove_seconds = time.perf_counter() - started
        done: Future[PolicyLoad] = Future()
        done.set_running_or_notify_cancel()

        def swap() -> None:
            swap_started = time.perf_counter()
            try:
                replace_weights(self._model, self.forward, proved)
            except CheckpointError as error:
                done.set_exception(error)
                return
            except BaseException as error:
                done.set_exception(error)
                raise
            self._scheduler.serve(version, recompute=self._recompute)
            swap_ms = 1e3 * (time.perf_counter() - swap_started)
            done.set_result(
                PolicyLoad(
                    version=version,
                    prove_seconds=prove_seconds,
                    swap_ms=swap_ms,
                    canary_gap=proved.canary_gap,
                    num_bytes=proved.num_bytes,
                )
            )

        self._send(swap)
        return await self._watch.result_of(done)

    async def close(self) -> None:
        """End the step thread; requests in flight fail with `EngineError`. A hung thread is abandoned."""
        self._commands.put(self._begin_close)
        await asyncio.to_thread(self._thread.join, max(self._watch.seconds_left, 0.0))

    def _running(self, request: GenerateRequest, done: "Future[GenerateResult]") -> Running:
        request = fitted(
            request,
            self._in_flight.keys(),
            vocab_size=self.vocab_size,
            max_context_tokens=self.max_context_tokens,
            has_tokenizer=self._tokenizer is not None,
            reads_pictures=self._inputs.reads_pictures,
        )
        entry = Running(
            request=request,
            finish=lambda outcome: _settle(done, outcome),
            positions_3L=self._inputs.positions(request),
        )
        if request.stop_strings and self._tokenizer is not None:
            entry.stop_strings = StopStrings(request.stop_strings, self._tokenizer, request.begun_ids)
        return entry

    def _send(self, command: Callable[[], None]) -> None:
        self._commands.put(command)
        # Checked after the put: `_end` settles commands that were queued before the end.
        self._raise_if_ended()

    def _raise_if_ended(self) -> None:
        if self._ended:
            raise self._stopped()

    @torch.inference_mode()
    def _run_steps(self, threads: int) -> None:
        """Execute commands and decode steps until the engine is closed; this is the step thread.

        An exception ends the engine and all its requests, and is printed to stderr.
        """
        torch.set_num_threads(threads)
        try:
            while not self._closing:
                self._carry_out(wait=not self._scheduler.busy)
                if self._scheduler.busy and not self._closing:
                    self._watch.begins()
                    self._scheduler.step()
        finally:
            self._end()

    def _carry_out(self, *, wait: bool) -> None:
        """Execute queued commands; with `wait`, sleep until the first one arrives."""
        if wait:
            self._watch.sleeps()
        try:
            while True:
                command = self._commands.get(block=wait)
                self._watch.begins()
                command()
                wait = False
        except Empty:
            return

    def _begin_close(self) -> None:
        self._closing = True

    def _end(self) -> None:
        self._cause = sys.exception()
        self._ended = True
        while not self._commands.empty():
            try:
                self._commands.get_nowait()()
            except Exception:
                logging.getLogger(__name__).exception("queued command failed because the engine stopped")
        self._scheduler.fail_all(self._stopped())

    def _stopped(self) -> EngineError:
        """Return the error for requests that are in flight when the engine ends, or arrive later."""
        error = EngineError(f"the engine has stopped: {self._cause or 'it was closed'}", "restart the engine")
        error.__cause__ = self._cause
        return error


def _settle(done: "Future[GenerateResult]", outcome: GenerateResult | EngineError) -> None:
    if isinstance(outcome, EngineError):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)
