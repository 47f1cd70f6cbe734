"""Engine process: serve the newest committed version of each policy, and load new versions when they are committed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from types import MappingProxyType

from quartet.access.place import THIS_MACHINE, Place, server_tls
from quartet.access.run_server import RunServer
from quartet.access.token import run_token
from quartet.config import Recipe
from quartet.engine.api import make_app
from quartet.engine.base import ServedEngine
from quartet.engine.guest import Guest
from quartet.engine.paths import served_at
from quartet.engine.service import EngineService, beating
from quartet.engine.start import Started, start_with_newest
from quartet.engine.wire import MODEL_NAME
from quartet.files.computing import is_computing
from quartet.ledger import Ledger
from quartet.manager.schedule import make_schedule
from quartet.registry import build
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder


async def run_engine(recipe: Recipe, run_dir: Path, stop: asyncio.Event, module: str = "engine") -> None:
    """Run the engine process named `module` (`engine`, `engine-2`, ...: `Recipe.engine_modules`) until `stop` is set.

    Raises `EngineError` if the engine ends; the caller then starts a new process.
    """
    with closing(Ledger.open(run_dir)) as ledger, Recorder(run_dir, module) as recorder:
        async with AsyncExitStack() as engines:
            started: dict[str, Started] = {}
            for policy in (*ledger.trained, *ledger.frozen):
                one = await _start(recipe, ledger.of(policy), stop, module)
                if one is None:
                    return
                engines.push_async_callback(one.engine.close)
                started[policy] = one
            async with _as_served(started, recipe, run_dir, module) as served:
                await _follow(started, served, recipe, ledger, recorder, stop, module)


async def _start(recipe: Recipe, ledger: Ledger, stop: asyncio.Event, module: str) -> Started | None:
    """Start the engine with the ledger's policy. Return None if `stop` is set before it has started.

    The start of a server may take minutes.
    """
    start = start_with_newest(recipe, ledger, module)
    starting = asyncio.create_task(beating(Presence(ledger.modules, module), start))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        return starting.result()
    starting.cancel()
    await asyncio.wait({starting})
    return None


@asynccontextmanager
async def _as_served(
    started: Mapping[str, Started], recipe: Recipe, run_dir: Path, module: str
) -> AsyncIterator[Mapping[str, ServedEngine]]:
    """Yield the engines by policy; those of a module that shares the trainer's device as guests there."""
    if module not in recipe.guest_modules:
        yield {name: one.engine for name, one in started.items()}
        return
    async with AsyncExitStack() as watching:
        is_away = _is_away(recipe, run_dir, module)
        guests = {name: Guest(one.engine, is_away) for name, one in started.items()}
        for guest in guests.values():
            await watching.enter_async_context(guest.watching())
        yield guests


async def _follow(
    started: Mapping[str, Started],
    served: Mapping[str, ServedEngine],
    recipe: Recipe,
    ledger: Ledger,
    recorder: Recorder,
    stop: asyncio.Event,
    module: str,
) -> None:
    """Serve the engines, one for each policy, and keep each at the newest version of its policy."""
    runtime, (first, *others) = recipe.runtime, list(served.items())
    serving = serve(
        first[1],
        token=run_token(ledger.run_dir),
        port=runtime.engine_port,
        place=Place(runtime.engine_host, server_tls(runtime.tls.certificate, runtime.tls.key)),
        recorder=recorder,
        model=first[0],
        others=dict(others),
    )
    async with serving as url:
        presence, is_away = Presence(ledger.modules, module, url=url), _is_away(recipe, ledger.run_dir, module)
        may_load = _may_load(recipe, ledger, is_away)
        services = [
            EngineService(one.engine, ledger.of(name), recorder, presence, may_load, is_away, one.refused_version)
            for name, one in started.items()
        ]
        await _keep_up(services, ledger, stop)


async def _keep_up(services: list[EngineService], ledger: Ledger, stop: asyncio.Event) -> None:
    """Call `tick` of all services repeatedly until `stop` is set.

    The service with the most requests is called last, so that the status shows its state as the module's state.
    """
    with ledger.notifier.subscribe("engine") as notifications:
        while not stop.is_set():
            for service in sorted(services, key=lambda service: service.active_requests):
                await service.tick()
            await notifications.wait(stop)


def _is_away(recipe: Recipe, run_dir: Path, module: str) -> Callable[[], bool]:
    """Return a function that says whether the trainer computes on the engine's device."""
    if module in recipe.guest_modules:
        return partial(is_computing, run_dir, recipe.host_trainer)
    return lambda: False


def _may_load(recipe: Recipe, ledger: Ledger, is_away: Callable[[], bool]) -> Callable[[], bool]:
    schedule, stragglers = make_schedule(recipe.admission.schedule), build(recipe.straggler, recipe)

    def may_load() -> bool:
        return not is_away() and schedule.may_take_weights(ledger, stragglers)

    return may_load


@asynccontextmanager
async def serve(
    engine: ServedEngine,
    *,
    token: str,
    port: int = 0,
    place: Place = THIS_MACHINE,
    recorder: Recorder | None = None,
    model: str = MODEL_NAME,
    others: Mapping[str, ServedEngine] = MappingProxyType({}),
) -> AsyncIterator[str]:
    """Serve `engine` inside the block and yield the base URL. Raises `SetupError` if the address is unavailable.

    `port` 0 picks a free port. `model` is the name of the engine's policy; `others` holds the engines of further
    policies by name, which are served at paths below the base URL.
    """
    app = make_app(engine, recorder, model=model)
    for name, other in others.items():
        app.add_subapp(served_at(name, model), make_app(other, recorder, model=name))
    server = RunServer(app, token=token, name="the engine", setting="runtime.engine", place=place)
    try:
        yield await server.start(port)
    finally:
        await server.stop()
