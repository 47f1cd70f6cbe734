"""The run's engines, found through the ledger: how long a worker waits for one follows from its leases."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from engine_models import make_requests

from quartet.engine.connect import EngineClients
from quartet.engine.router import Router
from quartet.errors import EngineError
from quartet.ledger import Ledger
from quartet.recipe.file import parse_recipe
from quartet.telemetry.presence import Presence
from tests.rollout.serving import serving


def router_for(ledger: Ledger, *, lease_seconds: float) -> Router:
    data = {"name": "engine", "model": {"path": "unused"}, "env": {"name": "bandit"}}
    return EngineClients(parse_recipe(data | {"rollout": {"lease_seconds": lease_seconds}}, "test"), ledger).router


async def test_an_engine_that_hangs_is_given_up_before_the_lease_is_lost(tmp_path: Path) -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"max_model_len": 256, "vocab_size": 512}]})

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"version": 0, "active_requests": 1})

    app = web.Application()
    app.add_routes([web.post("/v1/completions", hang), web.get("/v1/models", models), web.get("/health", health)])
    ledger = Ledger.create(tmp_path)
    router = router_for(ledger, lease_seconds=2.0)
    async with serving(app) as url, asyncio.timeout(30):
        Presence(ledger.modules, "engine", url=url).beat()
        with pytest.raises(EngineError, match=r"sent no data for 1\.6 s"):
            await router.generate(make_requests(1)[0])
    await router.close()
    ledger.close()


@pytest.mark.slow
async def test_a_frozen_process_blocks_no_health_check(tmp_path: Path) -> None:
    """It still accepts connections. The lease is long: a health check has a limit of its own."""
    connected = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    ledger = Ledger.create(tmp_path)
    router = router_for(ledger, lease_seconds=3600.0)
    async with asyncio.timeout(60), await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        Presence(ledger.modules, "engine", url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}").beat()
        with pytest.raises(EngineError, match="none of the engines answers"):
            await router.version()
        assert connected.is_set()
        await router.close()
    ledger.close()


async def test_an_engine_that_stays_away_is_given_up_before_the_lease_is_lost(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path)
    router = router_for(ledger, lease_seconds=0.5)
    async with asyncio.timeout(15):
        with pytest.raises(EngineError, match="none of the engines answers"):
            await router.generate(make_requests(1)[0])
    await router.close()
    ledger.close()
