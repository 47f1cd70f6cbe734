"""A vLLM server that Quartet starts is closed to everybody else, at every route. Needs no vLLM."""

import asyncio
import os
from pathlib import Path

import httpx
import pytest
from engine_kinds import engine_recipe
from engine_models import make_model, publish
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from quartet.engine.vllm.access import KEY_VARIABLE, RequireKey
from quartet.engine.vllm.process import MIDDLEWARE, VllmProcess
from quartet.errors import EngineError

ROUTES = [("GET", "/health"), ("POST", "/v1/completions"), ("POST", "/collective_rpc"), ("POST", "/pause?mode=keep")]
KEY = {"Authorization": "Bearer key"}


@pytest.fixture
async def client(monkeypatch):
    """A client of a server with vLLM's kind of routes, behind the middleware as vLLM installs it."""
    monkeypatch.setenv(KEY_VARIABLE, "key")

    async def answer(_: object) -> PlainTextResponse:
        return PlainTextResponse("answered")

    app = Starlette(routes=[Route(path.partition("?")[0], answer, methods=[method]) for method, path in ROUTES])
    app.add_middleware(RequireKey)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8000") as http:
        yield http


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_route_asks_for_the_key(client, method, path):
    assert (await client.request(method, path)).status_code == 401
    assert (await client.request(method, path, headers={"Authorization": "Bearer other"})).status_code == 401
    assert (await client.request(method, path, headers=KEY)).text == "answered"  # commands have no body and no type
    assert (await client.request(method, path, headers=KEY | {"Origin": "http://evil.example"})).status_code == 403
    assert (await client.request(method, path, headers=KEY | {"Host": "evil.example"})).status_code == 403


async def test_a_body_must_be_json(client):
    assert (await client.post("/v1/completions", headers=KEY, content=b"{}")).status_code == 415
    assert (await client.post("/v1/completions", headers=KEY, json={})).status_code == 200


async def test_the_key_is_handed_over_by_the_environment_alone(tmp_path: Path):
    """Every user of the machine may read a command line."""
    python, folder = tmp_path / "python", Path(publish(make_model(), tmp_path / "policy"))
    python.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\nenv > {tmp_path}/environment\n')
    python.chmod(0o755)
    recipe = engine_recipe("vllm", python=str(python), tensor_parallel=2)
    process = VllmProcess(recipe, folder, 256, tmp_path / "log", devices="2,3")
    with pytest.raises(EngineError, match="ended with code 0"):
        async with asyncio.timeout(60):
            while True:
                process.check()
                await asyncio.sleep(0.01)
    await process.close()
    arguments = (tmp_path / "arguments").read_text()
    assert f"--middleware {MIDDLEWARE}" in arguments and process.api_key not in arguments
    assert f"{KEY_VARIABLE}={process.api_key}\n" in (tmp_path / "environment").read_text()
    assert "--tensor-parallel-size 2" in arguments
    assert "CUDA_VISIBLE_DEVICES=2,3\n" in (tmp_path / "environment").read_text()
    assert process.api_key not in os.environ.values()
