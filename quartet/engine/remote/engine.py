"""Common part of engines that use a server: limits, counters, and the check of new weights before their tokens
are returned."""

import asyncio
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import AutoConfig

from quartet import config
from quartet.crash_points import crash_point
from quartet.engine.base import Counters, EngineState, GenerateRequest, GenerateResult, PolicyLoad
from quartet.engine.remote.server import Card, InferenceServer
from quartet.engine.request_check import fitted
from quartet.engine.result_check import find_problem
from quartet.engine.verified_load import refuse_gap
from quartet.errors import CheckpointError, EngineError, SetupError, WrongAnswerError
from quartet.policy.canary import Canary, fixed_sequence, has_canary, read_canary
from quartet.policy.files import check_policy, raising_checkpoint_errors
from quartet.policy.weights import weight_shapes
from quartet.types import Sampling

PROBE_TOKENS = 8
SAME_NATS = 1e-4
CERTAIN_NATS = 0.1
"""Smallest |log-prob| at temperature 1 of the tokens that are compared: temperature changes it less, the nearer it is
to 0."""


class Limits(NamedTuple):
    """Context and vocabulary limits of a model."""

    max_context_tokens: int
    vocab_size: int


def model_limits(folder: Path, config: config.Engine, *, trust_remote_code: bool = False) -> Limits:
    """Return the limits of the policy in `folder`, from its configuration and the recipe.

    Raises `CheckpointError` if the policy is damaged.
    """
    check_policy(folder)
    with raising_checkpoint_errors(f"cannot read the configuration of {folder}"):
        text = AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=trust_remote_code
        ).get_text_config()
        positions = getattr(text, "max_position_embeddings", None) or config.max_context_tokens
        return Limits(min(config.max_context_tokens, positions), text.vocab_size)


async def first_card(server: InferenceServer, setting: str, *, model: str = "", waits: bool) -> Card:
    """Return the model card of a server that is already running.

    If the server does not respond correctly, raise `SetupError`, or with `waits` (the run has used this server before,
    so it may come back) `EngineError`.
    """
    try:
        return await server.card(model)
    except EngineError as error:
        if waits:
            raise
        raise SetupError(f"{setting}: {error.what}", "start the server first, and check its log") from error


class RemoteEngine(ABC):
    """Base of a `ServedEngine` over a server; a subclass adds `_sample`, `_exchange`, `so_far` and `abort`.

    A policy load holds the lock `_loading` from the start of loading until the canary has passed. Tokens sampled while
    the lock is held may come from weights that fail the canary. A subclass must not return a token whose version is not
    in `_proved`, the versions that have passed the canary.
    """

    reads_pictures = False
    """True if the server shows pictures to the policy."""

    def __init__(self, server: InferenceServer, limits: Limits, config: config.Engine) -> None:
        self.max_context_tokens, self.vocab_size = limits
        self.counters = Counters()
        self._server, self._config = server, config
        self._in_flight: set[str] = set()
        self._loading = asyncio.Lock()
        self._folder: Path | None = None
        self._version = -1
        self._proved: set[int] = set()
        self._shapes: dict[str, list[int]] = {}

    @property
    def active_requests(self) -> int:
        return len(self._in_flight)

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample a response. Raises `PromptTooLongError` or `RefusedRequestError` for an invalid request, and
        `EngineError` if the server fails."""
        fits = fitted(
            request,
            self._in_flight,
            vocab_size=self.vocab_size,
            max_context_tokens=self.max_context_tokens,
            has_tokenizer=False,
            reads_pictures=self.reads_pictures,
        )
        self._in_flight.add(request.request_id)
        try:
            result = await self._sample(fits)
        finally:
            self._in_flight.discard(request.request_id)
        if problem := find_problem(request, result, self.vocab_size):
            raise WrongAnswerError(f"the server sent an invalid response to {request.request_id!r}: it {problem}")
        self.counters.requests += 1
        self.counters.prompt_tokens += len(request.prompt_ids)
        self.counters.generated_tokens += len(result.token_ids)
        return result

    @abstractmethod
    def so_far(self, request_id: str) -> GenerateResult:
        """Return the tokens that a request in flight has sampled so far, as far as their versions are known and have
        passed the canary."""

    async def version(self) -> int:
        """Return the served version. Raises `EngineError` if the server does not respond."""
        if not await self._server.is_up():
            raise EngineError(f"the server at {self._server.url} does not answer /health", "check the server's log")
        return self._version

    async def state(self) -> EngineState:
        """Return the served version; a subclass adds what its server reports of its memory."""
        return EngineState(await self.version())

    async def close(self) -> None:
        await self._server.close()

    async def load_policy(self, path: str | Path, version: int) -> PolicyLoad:
        """Serve the weights in folder `path` as `version`; the server must be able to read that folder.

        Raises `CheckpointError` for weights that are damaged, do not fit the model or fail the canary; the server then
        has its former weights again. Raises `EngineError` if it is unknown which weights the server has.
        """
        folder, started = Path(path), time.perf_counter()
        async with self._loading:
            canary = await asyncio.to_thread(self._examine, folder)
            crash_point("weights.before")
            swap_ms = await self._exchange(folder, version, keep_cache=self._config.kv_cache_on_weight_update == "keep")
            crash_point("weights.after")
            try:
                gap = await self._prove(folder, canary)
            except CheckpointError as error:
                await self._go_back()
                what = f"the policy in {folder} failed verification: {error.what}"
                raise CheckpointError(what, error.advice) from error
            self._folder, self._version = folder, version
            self._proved.add(version)
        prove_seconds = time.perf_counter() - started - swap_ms / 1e3
        return PolicyLoad(version=version, prove_seconds=prove_seconds, swap_ms=swap_ms, canary_gap=gap)

    async def require_scaled_logprobs(self, temperature: float) -> None:
        """Raise `SetupError` if the server reports log-probs at temperature 1 instead of at `temperature`.

        With such log-probs, training would compute a wrong importance weight for every token.
        """
        if temperature in (0.0, 1.0):
            return
        prompt_ids = fixed_sequence(self.vocab_size, PROBE_TOKENS)
        sampling = Sampling(temperature=temperature, max_tokens=PROBE_TOKENS)
        request = GenerateRequest(request_id="probe", prompt_ids=prompt_ids, sampling=sampling, stop_token_ids=[])
        result = await self.generate(request)
        unscaled = (await self._server.score(prompt_ids + result.token_ids))[len(prompt_ids) - 1 :]
        pairs = [(told, raw) for told, raw in zip(result.logprobs, unscaled, strict=True) if raw < -CERTAIN_NATS]
        if pairs and all(abs(told - raw) < SAME_NATS for told, raw in pairs):
            raise SetupError(
                f"the server at {self._server.url} reports log-probs at temperature 1, not of the distribution at "
                f"rollout.temperature = {temperature}",
                "start vLLM with --logprobs-mode processed_logprobs, or set rollout.temperature = 1",
            )

    @abstractmethod
    async def _sample(self, request: GenerateRequest) -> GenerateResult:
        """Return the server's response to `request`."""

    @abstractmethod
    async def _exchange(self, folder: Path, version: int, *, keep_cache: bool) -> float:
        """Load the weights of `folder` into the server. Return the milliseconds for which decoding was paused.

        Later requests use no KV cache of the former weights. With `keep_cache`, requests in flight keep their own KV
        cache, if the server supports that. Raises `EngineError` if it is unknown afterwards which weights the server
        has.
        """

    def _examine(self, folder: Path) -> Canary | None:
        """Check a policy's files before the server loads them; return the canary, or None without one.

        Raises `CheckpointError` if they are damaged or do not fit the model.
        """
        check_policy(folder)
        shapes = weight_shapes(folder)
        expected = self._shapes or shapes
        if wrong := sorted(name for name in shapes.keys() | expected.keys() if shapes.get(name) != expected.get(name)):
            raise CheckpointError(
                f"the policy in {folder} does not fit the last one: "
                f"{', '.join(wrong[:5])} missing, new or of another shape",
                "restore the folder: it was written only in part, or by the trainer of another model",
            )
        self._shapes = expected
        return read_canary(folder, self.vocab_size) if has_canary(folder) else None

    async def _prove(self, folder: Path, canary: Canary | None) -> float | None:
        """Verify the server's weights by the canary. Return the gap in nats, or None without a canary.

        Raises `CheckpointError` if the gap is too large.
        """
        if canary is None:
            return None
        longest = self.max_context_tokens - 1  # a server samples at least one token after the prompt
        try:
            scores = await asyncio.gather(*(self._server.score(ids[:longest]) for ids in canary.sequences))
            behind_screenshot = await self._score_behind_screenshot(canary)
        except EngineError as error:
            raise CheckpointError(f"the server cannot score the canary of {folder}: {error.what}") from error
        reduced = self._config.dtype != "float32"
        logprobs = [torch.tensor(score) for score in scores]
        unexplained = canary.unexplained_gap(logprobs, behind_screenshot, reduced=reduced)
        refuse_gap(unexplained, folder, reduced=reduced)
        return canary.gap(logprobs, behind_screenshot, reduced=reduced)

    async def _score_behind_screenshot(self, canary: Canary) -> torch.Tensor | None:
        """Return the server's log-probs of the canary's tokens behind the fixed screenshot; None without pictures."""
        return None

    async def _go_back(self) -> None:
        """Load the previously served policy, if any, into the server again."""
        if self._folder is None:
            return
        try:
            await self._exchange(self._folder, self._version, keep_cache=False)  # drops the rejected weights' cache
            await self._prove(self._folder, self._examine(self._folder))
        except CheckpointError as error:
            raise EngineError(
                f"the server has weights that failed verification: {error.what}", "restart the server"
            ) from error
