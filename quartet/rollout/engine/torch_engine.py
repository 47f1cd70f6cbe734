"""The embedded engine: one PyTorch model, one thread for its steps, continuous batching.

The asyncio side puts commands (a request, an abort, new weights) into a queue and awaits their futures; the step
thread carries them out between two decode steps. So new weights arrive with requests in flight: tokens before carry
the old version, tokens after the new one. Requests in flight keep the keys and values they computed under the old
weights, as most RL systems do; the trainer's importance weights account for it, and nothing is computed twice.
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

import torch
from msgspec import Struct
from transformers import PreTrainedModel

from quartet import config
from quartet.allocator import keep_freed_memory
from quartet.errors import CheckpointError, EngineError, PromptTooLongError
from quartet.policy.load import read_weights
from quartet.rollout.engine.base import GenerateRequest, GenerateResult
from quartet.rollout.engine.forward import make_forward
from quartet.rollout.engine.scheduler import Counters, Running, Scheduler
from quartet.rollout.engine.verified_load import replace_weights


class RefusedRequestError(EngineError):
    """The request makes no sense: no retry will help."""


class PolicyLoad(Struct, frozen=True, kw_only=True):
    """How a new policy was picked up."""

    version: int
    read_seconds: float
    """Reading the files, while the engine went on decoding."""
    swap_seconds: float
    """Between two decode steps: copying the weights and scoring the canary."""
    canary_gap: float | None
    """Largest log-prob difference to the trainer in nats; None without a canary."""


class TorchEngine:
    """Implements `Engine` for any causal language model with full attention."""

    def __init__(self, model: PreTrainedModel, version: int, config: config.Engine) -> None:
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.max_context_tokens = min(config.max_context_tokens, positions or config.max_context_tokens)
        keep_freed_memory()
        forward = make_forward(model, config.max_slots, self.max_context_tokens)
        self.vocab_size = forward.vocab_size
        self._model = model
        self._scheduler = Scheduler(forward, config.max_slots, version, config.prefix_cache_megabytes * 2**20)
        self._forward = forward
        self._in_flight: set[str] = set()
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._closing = self._ended = False
        self._cause: BaseException | None = None
        # A daemon: an engine that nobody closed must not keep the process alive.
        self._thread = Thread(target=self._run_steps, args=[config.threads], name="engine-steps", daemon=True)
        self._thread.start()

    @property
    def counters(self) -> Counters:
        """Totals since the start."""
        return self._scheduler.counters

    @property
    def active_requests(self) -> int:
        """Requests waiting or running."""
        return len(self._in_flight)

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample a response.

        Raises `PromptTooLongError`, `RefusedRequestError`, or `EngineError` when the engine failed or has stopped.
        """
        max_tokens = self._checked_max_tokens(request)
        done: Future[GenerateResult] = Future()
        # From here on a cancelled waiter cannot cancel the future under the step thread's feet.
        done.set_running_or_notify_cancel()
        entry = Running(request=request, max_tokens=max_tokens, finish=lambda outcome: _settle(done, outcome))
        self._in_flight.add(request.request_id)
        try:
            self._send(lambda: self._scheduler.add(entry))
            return await asyncio.wrap_future(done)
        except asyncio.CancelledError:
            self._commands.put(lambda: self._scheduler.abort(request.request_id))
            raise
        finally:
            self._in_flight.discard(request.request_id)

    async def abort(self, request_id: str) -> None:
        """End a request early; unknown ids are ignored."""
        self._send(lambda: self._scheduler.abort(request_id))

    async def version(self) -> int:
        """Version of the next sampled token. Raises `EngineError` when the step thread has ended."""
        self._raise_if_ended()
        return self._scheduler.version

    async def load_policy(self, path: str | Path, version: int) -> PolicyLoad:
        """Serve the weights in folder `path` as `version`, from the next decode step on.

        Raises `CheckpointError` when they are damaged, do not fit the model or fail the canary; the engine goes on
        with the weights it had. Any other error ends the engine: nobody knows which weights are in the model.
        """
        started = time.perf_counter()
        weights = await asyncio.to_thread(read_weights, Path(path))
        read_seconds = time.perf_counter() - started
        done: Future[PolicyLoad] = Future()
        done.set_running_or_notify_cancel()

        def swap() -> None:
            swap_started = time.perf_counter()
            try:
                gap = replace_weights(self._model, self._forward, weights, Path(path))
            except CheckpointError as error:
                done.set_exception(error)
                return
            except BaseException as error:
                done.set_exception(error)
                raise
            self._scheduler.serve(version)
            seconds = time.perf_counter() - swap_started
            done.set_result(
                PolicyLoad(version=version, read_seconds=read_seconds, swap_seconds=seconds, canary_gap=gap)
            )

        self._send(swap)
        return await asyncio.wrap_future(done)

    async def close(self) -> None:
        """End the step thread; requests in flight fail with `EngineError`."""
        self._commands.put(self._begin_close)
        await asyncio.to_thread(self._thread.join)

    def _checked_max_tokens(self, request: GenerateRequest) -> int:
        """Tokens this request may sample: what it asks for, limited by the room its prompt leaves."""
        prompt, room = request.prompt_ids, self.max_context_tokens - len(request.prompt_ids)
        name = f"request {request.request_id!r}"
        if not prompt or request.sampling.max_tokens < 1:
            raise RefusedRequestError(f"{name} has an empty prompt or max_tokens < 1", "both must be at least 1")
        if min(prompt) < 0 or max(prompt) >= self.vocab_size:
            raise RefusedRequestError(
                f"{name} has token ids from {min(prompt)} to {max(prompt)}, the vocabulary ends at {self.vocab_size}",
                "the prompt was made with another tokenizer than the policy's",
            )
        if room < 1:
            raise PromptTooLongError(
                f"{name} has {len(prompt)} prompt tokens, which leaves no room in {self.max_context_tokens} tokens",
                "raise engine.max_context_tokens (the model's own limit bounds it), or show the policy less",
            )
        if request.request_id in self._in_flight:
            raise RefusedRequestError(f"{name} is already in flight", "request ids are unique per engine")
        return min(request.sampling.max_tokens, room)

    def _send(self, command: Callable[[], None]) -> None:
        self._commands.put(command)
        # Checked after the put: a command put before the end is settled by `_end`.
        self._raise_if_ended()

    def _raise_if_ended(self) -> None:
        if self._ended:
            raise self._stopped()

    @torch.inference_mode()
    def _run_steps(self, threads: int) -> None:
        """The step thread. An exception here ends the engine and every request with it, and goes to stderr."""
        torch.set_num_threads(threads)
        try:
            while not self._closing:
                self._carry_out(wait=not self._scheduler.busy)
                if self._scheduler.busy and not self._closing:
                    self._scheduler.step()
        finally:
            self._end()

    def _carry_out(self, *, wait: bool) -> None:
        """Carry out what was asked for; sleep until something is when `wait`."""
        if wait:
            self._commands.get()()
        try:
            while True:
                self._commands.get_nowait()()
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
                logging.getLogger(__name__).exception("a command that waited when the engine stopped failed too")
        self._scheduler.fail_all(self._stopped())

    def _stopped(self) -> EngineError:
        """What to tell requests that come or stay after the end."""
        error = EngineError(f"the engine has stopped: {self._cause or 'it was closed'}", "start it again")
        error.__cause__ = self._cause
        return error


def _settle(done: "Future[GenerateResult]", outcome: GenerateResult | EngineError) -> None:
    if isinstance(outcome, EngineError):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)
