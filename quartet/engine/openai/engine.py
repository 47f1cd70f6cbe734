"""Engine over any server with OpenAI's completion API, by URL.

Training needs token ids, log-probs and a route for new weights; a server that lacks one of these can be used for
evaluation only. OpenAI's API cannot pause requests, so an update of the weights interrupts them: the engine closes
every stream, has the server load the weights, and continues each request in a new stream from its prompt and the tokens
sampled so far, as in AReaL. All tokens of one stream have the same policy version.
"""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from quartet.access.variables import secret
from quartet.config import Recipe
from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.openai.stream import Partial, read_into
from quartet.engine.partial import NOTHING
from quartet.engine.remote.engine import Limits, RemoteEngine, first_card, model_limits
from quartet.engine.remote.server import InferenceServer, ServerRefusedError
from quartet.errors import CheckpointError, EngineError, RefusedRequestError, SetupError
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.registry import own_settings
from quartet.types import FinishReason, Policy, Sampling

LOG = logging.getLogger(__name__)
PROBE = GenerateRequest(request_id="probe", prompt_ids=[0], sampling=Sampling(max_tokens=2), stop_token_ids=[])


async def open_openai(recipe: Recipe, policy: Policy, *, trains: bool) -> "OpenAIEngine":
    """Connect to the server at `engine.url`.

    Raises `SetupError`, which names what the server lacks for training, and `CheckpointError` if the server's weights
    are not the policy's.
    """
    settings, trust = own_settings(recipe.engine), recipe.model.trust_remote_code
    limits = model_limits(Path(policy.path), recipe.engine, trust_remote_code=trust)
    server = InferenceServer(settings.url, api_key=secret("engine.api_key_variable", settings.api_key_variable))
    try:
        began = trains and policy.version > 0
        card = await first_card(server, "engine.url", model=settings.model, waits=began)
        shortest = min(limits.max_context_tokens, card.max_model_len or limits.max_context_tokens)
        engine = OpenAIEngine(server, Limits(shortest, limits.vocab_size), recipe, Path(policy.path))
        lacks = await engine.find_missing()
        if trains and lacks:
            raise SetupError(
                f"the server at {settings.url} cannot be used for training: it {lacks}",
                "use a server without these limits; `quartet eval` can use this one",
            )
        if trains:
            await engine.load_policy(policy.path, policy.version)
            await engine.require_scaled_logprobs(recipe.rollout.temperature)
        else:
            await engine.adopt(policy.path, policy.version)
    except ServerRefusedError as error:
        await server.close()
        raise SetupError(
            f"{error.what}", "set engine.url to a server that completes token ids at /v1/completions"
        ) from error
    except BaseException:
        await server.close()
        raise
    return engine


class OpenAIEngine(RemoteEngine):
    """`ServedEngine` over one server."""

    def __init__(self, server: InferenceServer, limits: Limits, recipe: Recipe, folder: Path) -> None:
        super().__init__(server, limits, recipe.engine)
        self._reload = own_settings(recipe.engine).reload
        self._tokenizer_folder, self._trust_remote_code = folder, recipe.model.trust_remote_code
        self._tokenizer: Any = None
        self._plain = False
        """True if the server rejects requests with fields outside OpenAI's documentation."""
        self._tells_ids = self._tells_logprobs = self._tells_prompt = True
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._partials: dict[str, Partial] = {}

    async def find_missing(self) -> str:
        """Request two tokens as a test. Return what the server lacks for training, as verb phrases; "" if nothing."""
        partial = Partial()
        try:
            await read_into(partial, self._server, PROBE, 0, plain=False)
        except ServerRefusedError:
            self._plain, partial = True, Partial()
            await read_into(partial, self._server, PROBE, 0, plain=True)
        self._tells_ids = len(partial.sampled) > 0
        self._tells_logprobs = self._tells_ids and partial.sampled.has_logprobs
        try:
            await self._server.score([0, 1, 2])
        except EngineError:
            self._tells_prompt = False
        lacks = {
            "does not return token ids (return_token_ids), which cannot be recovered exactly from its text": (
                self._tells_ids
            ),
            "does not return the log-probs of sampled tokens": self._tells_logprobs,
            "does not echo the log-probs of a prompt, by which its weights are verified": self._tells_prompt,
            "takes no new weights: engine.reload = 'none'": self._reload != "none",
        }
        return "; it ".join(what for what, has in lacks.items() if not has)

    async def adopt(self, path: str | Path, version: int) -> None:
        """Serve the server's current weights as `version`.

        Raises `CheckpointError` if the canary shows that these weights are not the policy in `path`. Logs a warning if
        the weights cannot be verified.
        """
        folder = Path(path)
        canary = self._examine(folder)
        if self._tells_prompt and canary is not None:
            await self._prove(folder, canary)
        else:
            LOG.warning("cannot verify that %s serves %s: no canary, or no prompt log-probs", self._server.url, folder)
        self._version = version

    async def version(self) -> int:
        """Return the served version. Raises `EngineError` if the server does not respond."""
        await self._server.card(self._server.model)
        return self._version

    def so_far(self, request_id: str) -> GenerateResult:
        """Return the tokens that a request in flight has sampled so far; none if the server reports no log-probs."""
        partial = self._partials.get(request_id)
        return partial.so_far() if partial and self._tells_logprobs else NOTHING

    async def abort(self, request_id: str) -> None:
        """End a request early; unknown ids are ignored."""
        if partial := self._partials.get(request_id):
            partial.aborted = True
            if stream := self._streams.get(request_id):
                stream.cancel()

    async def _sample(self, request: GenerateRequest) -> GenerateResult:
        if self._plain and (request.sampling.top_k or request.sampling.min_tokens):
            raise RefusedRequestError(
                f"the server at {self._server.url} supports neither top_k nor min_tokens",
                "remove evaluation.top_k and evaluation.min_tokens from the recipe",
            )
        partial = self._partials[request.request_id] = Partial()
        try:
            while not (partial.aborted or partial.has_ended(request)):
                await self._stream(partial, request)
        finally:
            del self._partials[request.request_id]
        return self._result(partial, request)

    async def _stream(self, partial: Partial, request: GenerateRequest) -> None:
        """Read a stream until the response ends, or until new weights or an abort interrupt it."""
        async with self._loading:  # no sampling while weights are exchanged
            if partial.aborted:  # it was aborted while this task waited for the lock
                return
            reading = read_into(partial, self._server, request, self._version, plain=self._plain)
            self.counters.recomputed_tokens += _length(request, partial) if partial.sampled else 0
            stream = self._streams[request.request_id] = asyncio.create_task(reading)
        try:
            await asyncio.wait({stream})
            if not stream.cancelled():
                stream.result()
                if not partial.has_ended(request):
                    raise EngineError(f"{self._server.url} ended its stream without a finish_reason")
        finally:
            stream.cancel()
            del self._streams[request.request_id]

    async def _exchange(self, folder: Path, version: int, *, keep_cache: bool) -> float:
        started = time.perf_counter()
        streams = list(self._streams.values())
        for stream in streams:
            stream.cancel()
        if streams:
            await asyncio.wait(streams)
        body = {"model_path": str(folder.resolve()), "flush_cache": True, "weight_version": str(version)}
        try:
            await self._server.call("POST", f"/{self._reload}", body, dict[str, Any])
        except ServerRefusedError as error:
            await self._go_back_or_fail(error)
            raise CheckpointError(f"the server refused the policy in {folder}: {error.what}") from error
        return 1e3 * (time.perf_counter() - started)

    async def _go_back_or_fail(self, error: ServerRefusedError) -> None:
        """Raise `EngineError` if the server no longer has its former weights after it rejected new ones."""
        if self._folder is not None:
            try:
                await self._prove(self._folder, self._examine(self._folder))
            except CheckpointError:
                raise EngineError(f"the server refused new weights and lost its former ones: {error.what}") from error

    def _result(self, partial: Partial, request: GenerateRequest) -> GenerateResult:
        result = partial.result(request)
        if self._tells_logprobs:
            return result
        token_ids = result.token_ids if self._tells_ids else self._tokenize(partial, request, result.finish_reason)
        kept = token_ids[: request.sampling.max_tokens]
        # Tokens of the text can be more than those sampled. Without its end the response did not stop.
        reason = result.finish_reason if len(kept) == len(token_ids) else FinishReason.LENGTH
        return replace(result, token_ids=kept, finish_reason=reason, logprobs=[], versions=[])

    def _tokenize(self, partial: Partial, request: GenerateRequest, reason: FinishReason) -> list[int]:
        """Tokenize the text from a server that reports no token ids; for evaluation only."""
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self._tokenizer_folder, trust_remote_code=self._trust_remote_code)
        ids = self._tokenizer(partial.text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return [*ids, *request.stop_token_ids[:1]] if reason is FinishReason.STOP else ids


def _length(request: GenerateRequest, partial: Partial) -> int:
    return len(request.prompt_ids) + len(partial.sampled)
