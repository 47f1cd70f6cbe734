"""The engine process: serves the latest committed policy and picks each newer one up on its own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

from quartet.access.local_server import LocalServer
from quartet.access.token import run_token
from quartet.config import Recipe
from quartet.data.ledger import Ledger
from quartet.data.schedule import make_schedule
from quartet.observe.presence import Presence
from quartet.observe.record import Recorder
from quartet.registry import build
from quartet.rollout.engine.api import make_app
from quartet.rollout.engine.base import ServedEngine
from quartet.rollout.engine.service import EngineService, beating
from quartet.rollout.engine.start import Started, start_with_newest


async def run_engine(recipe: Recipe, run_dir: Path, stop: asyncio.Event, module: str = "engine") -> None:
    """Serve until `stop` is set, as one of `Recipe.engine_modules`. Raises `EngineError` when the engine ends: start a
    new process then."""
    with closing(Ledger.open(run_dir)) as ledger, Recorder(run_dir, module) as recorder:
        started = await _start(recipe, ledger, stop, module)
        if started is not None:
            await _follow(started, recipe, ledger, recorder, stop, module)


async def _start(recipe: Recipe, ledger: Ledger, stop: asyncio.Event, module: str) -> Started | None:
    """The engine with a policy; None when `stop` is set before it is up, which takes a server minutes."""
    start = start_with_newest(recipe, ledger, module)
    starting = asyncio.create_task(beating(Presence(ledger, module), start))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        return starting.result()
    starting.cancel()
    await asyncio.wait({starting})
    return None


async def _follow(
    started: Started, recipe: Recipe, ledger: Ledger, recorder: Recorder, stop: asyncio.Event, module: str
) -> None:
    """Serve the engine and keep it at the ledger's policy; closes it at the end."""
    engine = started.engine
    try:
        token, port = run_token(ledger.run_dir), recipe.runtime.engine_port
        async with serve(engine, token=token, port=port, recorder=recorder) as url:
            presence = Presence(ledger, module, url=url)
            may_load = _may_load(recipe, ledger)
            service = EngineService(engine, ledger, recorder, presence, may_load, started.refused_version)
            await _keep_up(service, ledger, stop)
    finally:
        await engine.close()


async def _keep_up(service: EngineService, ledger: Ledger, stop: asyncio.Event) -> None:
    with ledger.doorbells.hang("engine") as bell:
        while not stop.is_set():
            await service.tick()
            await bell.wait(stop)


def _may_load(recipe: Recipe, ledger: Ledger) -> Callable[[], bool]:
    schedule, stragglers = make_schedule(recipe.admission.schedule), build(recipe.straggler, recipe)
    return lambda: schedule.may_take_weights(ledger, stragglers)


@asynccontextmanager
async def serve(
    engine: ServedEngine, *, token: str, port: int = 0, recorder: Recorder | None = None
) -> AsyncIterator[str]:
    """Serve inside the block; gives the base URL. Port 0 takes a free one. Raises `SetupError` when it is taken."""
    app = make_app(engine, recorder)
    server = LocalServer(app, token=token, name="the engine", port_setting="runtime.engine_port")
    try:
        yield await server.start(port)
    finally:
        await server.stop()
