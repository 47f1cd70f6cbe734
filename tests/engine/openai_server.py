"""A server that speaks OpenAI's completion format over the torch engine: what `engine.url` names in the tests.

It streams token by token, echoes log-probs of prompts, and takes new weights by SGLang's route. Each of its abilities
can be missing, as it is on real servers.
"""

import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from aiohttp import web
from engine_models import MAX_CONTEXT_TOKENS, reference_logprobs
from transformers import PreTrainedModel

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.torch_engine import TorchEngine
from quartet.errors import CheckpointError, EngineError
from quartet.files.whole_folder import CHECKSUMS
from quartet.policy.canary import CANARY_FILE
from quartet.types import FinishReason, Sampling
from tests.rollout.serving import serving

STANDARD_FIELDS = {"model", "prompt", "max_tokens", "temperature", "top_p", "stream", "logprobs", "seed", "echo"}


@dataclass
class OpenAIServer:
    """Serves `engine`, whose model is `model`."""

    engine: TorchEngine
    model: PreTrainedModel
    tells_ids: bool = True
    tells_logprobs: bool = True
    echoes: bool = True
    obeys: bool = True
    """Off: it says that it has new weights, and keeps the old ones."""
    scales: bool = True
    """Off: log-probs are those of temperature 1, whatever was asked for."""
    strict: bool = False
    """On: fields that OpenAI's documentation lacks are refused."""
    repeats: bool = False
    """On: the text of a token is two tokens for the policy's tokenizer."""
    requests: int = 0

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/completions", self.completions)
        app.router.add_post("/update_weights_from_disk", self.update_weights)
        async with serving(app) as url:
            yield url

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "policy", "max_model_len": MAX_CONTEXT_TOKENS}], "object": "list"})

    async def completions(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        if self.strict and (unknown := body.keys() - STANDARD_FIELDS):
            return web.json_response({"error": {"message": f"unknown fields {sorted(unknown)}"}}, status=400)
        if body.get("echo"):
            return web.json_response({"choices": [{"text": "", "logprobs": self._echo(body["prompt"])}]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        async for event in self._events(body):
            await response.write(b"data: " + event + b"\n\n")
        return response

    async def update_weights(self, http: web.Request) -> web.Response:
        if not self.obeys:
            return web.json_response({"success": True})
        with tempfile.TemporaryDirectory() as copy:
            # Without canary and checksums: such a server believes every file.
            folder = shutil.copytree((await http.json())["model_path"], Path(copy) / "policy")
            (folder / CANARY_FILE).unlink(missing_ok=True)
            (folder / CHECKSUMS).unlink(missing_ok=True)
            try:
                await self.engine.load_policy(folder, await self.engine.version() + 1)
            except CheckpointError as error:
                return web.json_response({"success": False, "message": str(error)}, status=400)
        return web.json_response({"success": True})

    async def _events(self, body: dict[str, Any]) -> AsyncIterator[bytes]:
        self.requests += 1
        sampling = Sampling(
            temperature=body["temperature"],
            top_k=max(body.get("top_k", 0), 0),
            top_p=body["top_p"],
            seed=body["seed"],
            max_tokens=body["max_tokens"],
            min_tokens=body.get("min_tokens", 0),
        )
        request = GenerateRequest(
            request_id=str(self.requests),
            prompt_ids=body["prompt"],
            sampling=sampling,
            stop_token_ids=[] if body.get("ignore_eos") else body.get("stop_token_ids", []),  # as SGLang has it
        )
        reason = None
        for position in range(sampling.max_tokens):
            one = msgspec.structs.replace(sampling, max_tokens=1, min_tokens=int(position < sampling.min_tokens))
            step = msgspec.structs.replace(request, sampling=one)
            try:
                result = await self.engine.generate(step)
            except EngineError as error:
                yield json.dumps({"error": {"message": error.what}}).encode()
                break
            if result.finish_reason is FinishReason.STOP or position == sampling.max_tokens - 1:
                reason = str(result.finish_reason)
            yield json.dumps({"choices": [self._choice(request, result, reason)]}).encode()
            if reason:
                break
            request = msgspec.structs.replace(request, prompt_ids=request.prompt_ids + result.token_ids)
        yield b"[DONE]"

    def _choice(self, request: GenerateRequest, result: GenerateResult, reason: str | None) -> dict[str, Any]:
        text = f" w{result.token_ids[0]}"
        if self.repeats:  # as a server does that leaves the stop token out of the text
            text = "" if reason == "stop" else 2 * text
        choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": reason}
        if self.tells_ids:
            choice["token_ids"] = result.token_ids
        if self.tells_logprobs:
            choice["logprobs"] = {"token_logprobs": result.logprobs if self.scales else self._unscaled(request, result)}
        return choice

    def _unscaled(self, request: GenerateRequest, result: GenerateResult) -> list[float]:
        return [float(reference_logprobs(self.model, request, result.token_ids)[0, result.token_ids[0]])]

    @torch.inference_mode()
    def _echo(self, prompt: list[int]) -> dict[str, Any] | None:
        if not self.echoes:
            return None
        logprobs = self.model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0].log_softmax(-1)
        told = logprobs[:-1].gather(-1, torch.tensor(prompt[1:])[:, None])[:, 0].tolist()
        return {"token_logprobs": [None, *told, -1.0]}
