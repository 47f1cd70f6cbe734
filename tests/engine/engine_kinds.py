"""One opener per kind of engine: what the conformance suite runs over."""

import asyncio
import importlib.util
import os
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from engine_models import MAX_CONTEXT_TOKENS, make_model, publish
from openai_server import OpenAIServer
from transformers import PreTrainedModel

from quartet.config import Recipe
from quartet.engine.base import ServedEngine
from quartet.engine.openai.engine import open_openai
from quartet.engine.remote.server import InferenceServer
from quartet.engine.torch_engine import TorchEngine, open_torch
from quartet.engine.vllm.engine import open_vllm
from quartet.engine.vllm.process import VllmProcess
from quartet.recipe.file import parse_recipe
from quartet.types import Policy

needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="`make test-vllm` installs vLLM")
needs_vllm_with_pictures = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None or importlib.util.find_spec("torchvision") is None,
    reason="vLLM's Qwen-VL imports torchvision, which `make test-vllm` installs",
)
VLLM_ARGUMENTS = ["--enforce-eager"]
VLLM_KEY_VARIABLE = "KEY_OF_THE_TESTS_VLLM"
MAX_SLOTS = 8

Open = Callable[..., Awaitable[ServedEngine]]


def engine_recipe(kind: str, **engine: object) -> Recipe:
    settings = {"name": kind, "max_slots": MAX_SLOTS, "max_context_tokens": MAX_CONTEXT_TOKENS} | engine
    data = {"name": "engine", "model": {"path": "unused"}, "env": {"name": "bandit"}, "engine": settings}
    return parse_recipe(data, "test")


def by_url(vllm_url: str, **engine: object) -> Recipe:
    """With the server that `vllm_server` started."""
    return engine_recipe("vllm", url=vllm_url, api_key_variable=VLLM_KEY_VARIABLE, **engine)


async def open_engine(
    kind: str, policy: Policy, model: PreTrainedModel, stack: AsyncExitStack, vllm_url: str, **engine: object
) -> ServedEngine:
    """An engine of this kind with a policy, whose weights are those of `model`."""
    if kind == "torch":
        return open_torch(engine_recipe("torch", **engine), policy)
    if kind == "vllm":
        return await open_vllm(by_url(vllm_url, **engine), policy, Path("unused"))
    inner = TorchEngine(model, 0, engine_recipe("torch").engine)
    stack.push_async_callback(inner.close)
    url = await stack.enter_async_context(OpenAIServer(inner, model).serve())
    recipe = engine_recipe("openai", url=url, reload="update_weights_from_disk", **engine)
    return await open_openai(recipe, policy, trains=True)


def vllm_server(folder: Path) -> Iterator[str]:
    """A real server for all tests of a session; each test loads its own weights into it."""
    publish(make_model("qwen3_tied"), folder / "policy")
    recipe = engine_recipe("vllm", arguments=VLLM_ARGUMENTS)
    process = VllmProcess(recipe, folder / "policy", MAX_CONTEXT_TOKENS, folder / "vllm.stderr")

    os.environ[VLLM_KEY_VARIABLE] = process.api_key

    async def wait() -> None:
        server = InferenceServer(process.url, api_key=process.api_key)
        try:
            await process.wait_until_up(server)
        finally:
            await server.close()

    with ThreadPoolExecutor(1) as thread:  # pytest's own event loop stays as it is
        thread.submit(asyncio.run, wait()).result()
        yield process.url
        thread.submit(asyncio.run, process.close()).result()
