"""Engine over vLLM's HTTP API, with token ids instead of text.

New weights are loaded between two decode steps, while requests are paused. vLLM's worker reads the new weights from the
policy's folder, or receives them from the trainer's memory (`publisher = "broadcast"`); then the version's name and the
cache salt change, and requests resume. The setting `engine.kv_cache_on_weight_update` decides whether the KV cache of
paused requests is recomputed or kept. Because of the new salt, new requests do not use cached prefixes of older
weights. vLLM reports the version that sampled each token. Tokens of a new version are returned only after its weights
have passed the canary, which is scored over the same API; for a policy that reads pictures, also behind a screenshot.
"""

import time
import uuid
from pathlib import Path
from typing import Any

import msgspec
import torch

from quartet.access.variables import secret
from quartet.config import Recipe
from quartet.engine.backend.vllm import Vllm
from quartet.engine.base import EngineState, GenerateRequest, GenerateResult
from quartet.engine.partial import NOTHING
from quartet.engine.remote.engine import Limits, RemoteEngine, first_card, model_limits
from quartet.engine.remote.server import InferenceServer, ServerRefusedError
from quartet.engine.vllm.process import (
    READ_THE_LOG,
    REQUIRED_ARGUMENTS,
    REQUIRED_ENVIRONMENT,
    VllmProcess,
    implementation,
)
from quartet.engine.vllm.response import Response
from quartet.engine.vllm.wire import (
    REQUEST_ID_PREFIX,
    ROUTE,
    Scored,
    StreamEvent,
    cache_use,
    generate_body,
    score_body,
)
from quartet.errors import CheckpointError, EngineError, SetupError, WrongAnswerError
from quartet.policy.canary import Canary
from quartet.policy.kind.base import PictureProcessor
from quartet.policy.kind.find import load_pictures
from quartet.policy.publisher.base import Publisher
from quartet.policy.screenshot import behind_screenshot
from quartet.registry import build, own_settings
from quartet.types import Policy, Sampling

PROBE = GenerateRequest(request_id="probe", prompt_ids=[0], sampling=Sampling(max_tokens=1), stop_token_ids=[])


async def open_vllm(recipe: Recipe, policy: Policy, log: Path, devices: str = "") -> "VllmEngine":
    """Start a server on the GPUs `devices` (empty: all) that logs to `log`, or connect to the one at `engine.url`, and
    load the policy.

    Raises `SetupError` if the server does not start, cannot compute the policy or lacks something that training needs,
    and `CheckpointError` if the server's log-probs of the canary differ from the trainer's.
    """
    limits = model_limits(Path(policy.path), recipe.engine, trust_remote_code=recipe.model.trust_remote_code)
    settings: Vllm.Settings = own_settings(recipe.engine)
    if settings.url:
        key = secret("engine.api_key_variable", settings.api_key_variable)
        server, process = InferenceServer(settings.url, api_key=key), None
    else:
        process = VllmProcess(recipe, Path(policy.path), limits.max_context_tokens, log, devices)
        server = InferenceServer(process.url, api_key=process.api_key)
    try:
        if process is not None:
            await process.wait_until_up(server)
        card = await first_card(server, "engine.url", waits=process is not None or policy.version > 0)
        shortest = min(limits.max_context_tokens, card.max_model_len or limits.max_context_tokens)
        engine = VllmEngine(
            server, process, Limits(shortest, limits.vocab_size), recipe, load_pictures(Path(policy.path))
        )
        await engine.require_routes()
        await engine.load_policy(policy.path, policy.version)
        await engine.require_versions()
        await engine.require_scaled_logprobs(recipe.rollout.temperature)
    except BaseException as error:
        await server.close()
        if process is not None:
            await process.close()
        needed = implementation(Path(policy.path))
        if process is None and needed and isinstance(error, CheckpointError):
            raise CheckpointError(error.what, f"start the server with {needed}, which this policy needs") from error
        if process is not None and isinstance(error, EngineError):  # it would fail again after each restart
            raise SetupError(
                f"vLLM cannot serve the policy: {process.last_error() or error}; see {log}", READ_THE_LOG
            ) from error
        raise
    return engine


class VllmEngine(RemoteEngine):
    """`ServedEngine` over one vLLM server."""

    def __init__(
        self,
        server: InferenceServer,
        process: VllmProcess | None,
        limits: Limits,
        recipe: Recipe,
        pictures: PictureProcessor | None = None,
    ) -> None:
        super().__init__(server, limits, recipe.engine)
        self._process = process
        self._pictures, self.reads_pictures = pictures, pictures is not None
        self._never_sampled = pictures.never_sampled if pictures else []
        self._keeps = recipe.engine.kv_cache_on_weight_update == "keep"
        publisher: Publisher = build(recipe.publisher)
        self._transfer_seconds = publisher.transfer_seconds
        self._server_version = -1
        """Version of the weights in the server, which may not have passed the canary yet."""
        self._cache_salt = uuid.uuid4().hex
        self._responses: dict[str, Response] = {}
        """Responses of requests in flight, by request id."""

    async def version(self) -> int:
        """Return the served version. Raises `EngineError` if the server's process has ended or does not respond."""
        if self._process is not None:
            self._process.check()
        return await super().version()

    async def state(self) -> EngineState:
        return EngineState(await self.version(), cache_use(await self._server.text("/metrics")))

    async def abort(self, request_id: str) -> None:
        """End a request early; unknown ids are ignored."""
        body = {"request_ids": [REQUEST_ID_PREFIX + request_id]}
        await self._server.call("POST", "/abort_requests", body, dict[str, Any])

    async def close(self) -> None:
        await super().close()
        if self._process is not None:
            await self._process.close()

    async def require_routes(self) -> None:
        """Raise `SetupError`, which names the required start options, if the server lacks a route."""
        try:
            await self._server.call("GET", "/weight_info", None, dict[str, Any])
            await self._command("/collective_rpc", {"method": "quartet_is_here"})
            # An engine that died while it exchanged the weights has left its server paused.
            await self._command("/resume")
            await self._read(Response(0), generate_body(PROBE, self._cache_salt))
        except (ServerRefusedError, ValueError, msgspec.DecodeError) as error:
            raise _cannot_train(str(error)) from error

    async def require_versions(self) -> None:
        """Raise `SetupError` if the server's responses lack something that training needs.

        Call it after a policy load.
        """
        try:
            await self.generate(PROBE)
        except WrongAnswerError as error:
            raise _cannot_train(error.what) from error

    def so_far(self, request_id: str) -> GenerateResult:
        """Return the tokens that a request has sampled with the version at its start; none until that version has
        passed the canary."""
        response = self._responses.get(request_id)
        return response.so_far() if response and response.asked_at_version in self._proved else NOTHING

    async def _sample(self, request: GenerateRequest) -> GenerateResult:
        response = self._responses[request.request_id] = Response(
            self._server_version, request.prompt_ids if request.media else ()
        )
        try:
            return await self._proved_result(request, response)
        except (ValueError, msgspec.DecodeError) as error:
            raise WrongAnswerError(f"the server sent an invalid response to {request.request_id!r}: {error}") from error
        finally:
            del self._responses[request.request_id]

    async def _proved_result(self, request: GenerateRequest, response: Response) -> GenerateResult:
        """Return the result once all its versions have passed the canary; wait for a verification in progress."""
        await self._read(response, generate_body(request, self._cache_salt, self._never_sampled))
        result = response.result()
        if not self._proved.issuperset(result.versions):
            async with self._loading:
                pass
        if not self._proved.issuperset(result.versions):
            what = (
                f"the response to request {request.request_id!r} was sampled from new weights that then failed "
                "verification"
            )
            raise WrongAnswerError(what, "retry the request")
        if self._keeps:
            oldest = [min(response.asked_at_version, version) for version in result.versions]
            return msgspec.structs.replace(result, cache_versions=oldest if oldest != result.versions else [])
        self.counters.recomputed_tokens += _recomputed(request, result)
        return result

    async def _read(self, response: Response, body: object) -> None:
        async for data in self._server.events(ROUTE, body):
            event = msgspec.json.decode(data, type=StreamEvent)
            if event.error:
                raise EngineError(f"{self._server.url}{ROUTE} failed: {event.error}")
            if event.prompt_token_ids is not None:
                response.confirm(event.prompt_token_ids)
            for choice in event.choices:
                response.add(choice)

    async def _exchange(self, folder: Path, version: int, *, keep_cache: bool) -> float:
        started = time.perf_counter()
        # Clearing the cache also discards the KV cache of paused requests.
        clear = "false" if keep_cache else "true"
        await self._command(f"/pause?mode=keep&clear_cache={clear}")
        arguments = [str(folder.resolve()), self._transfer_seconds]
        await self._command("/collective_rpc", {"method": "quartet_load_policy", "args": arguments})
        await self._command("/update_weight_version", {"new_version": str(version)})
        for response in self._responses.values():
            response.weights_change()
        # Every exchange has a new salt, so that a cached prefix is used only by requests with the same weights.
        self._server_version, self._cache_salt = version, uuid.uuid4().hex
        await self._command("/resume")
        return 1e3 * (time.perf_counter() - started)

    async def _score_behind_screenshot(self, canary: Canary) -> torch.Tensor | None:
        if self._pictures is None or canary.behind_screenshot is None:
            return None
        prompt, first = behind_screenshot(self._pictures, canary.ids_behind_screenshot)
        scored = await self._server.call("POST", ROUTE, score_body(prompt, self._cache_salt), Scored)
        return torch.tensor(scored.logprobs(prompt.ids)[first - 1 :])

    async def _command(self, path: str, body: object = None) -> None:
        await self._server.call("POST", path, body, dict[str, Any])


def _cannot_train(what: str) -> SetupError:
    variables = " ".join(f"{name}={value}" for name, value in REQUIRED_ENVIRONMENT.items())
    return SetupError(
        f"this vLLM server cannot be used for training: {what}",
        f"start it with {variables} and {' '.join(REQUIRED_ARGUMENTS)}",
    )


def _recomputed(request: GenerateRequest, result: GenerateResult) -> int:
    """Return the number of tokens that were computed again: for each change of weights, all tokens before it."""
    changes = [i for i in range(1, len(result.versions)) if result.versions[i] != result.versions[i - 1]]
    return sum(len(request.prompt_ids) + position for position in changes)
