"""The engine process: serves the latest committed policy and picks each newer one up on its own."""

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from aiohttp import web

from quartet.config import Recipe
from quartet.data.ledger import Ledger
from quartet.errors import CheckpointError, SetupError
from quartet.observe.presence import Presence
from quartet.observe.record import Recorder
from quartet.policy.load import load_policy
from quartet.rollout.engine.api import make_app
from quartet.rollout.engine.torch_engine import PolicyLoad, TorchEngine
from quartet.rollout.engine.verified_load import verify
from quartet.types import Policy

HOST = "127.0.0.1"
METRICS_SECONDS = 5.0


async def run_engine(recipe: Recipe, run_dir: Path, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Raises `EngineError` when the step thread ends: start a new process then."""
    ledger, recorder = Ledger.open(run_dir), Recorder(run_dir, "engine")
    policy = ledger.latest_policy()
    model: Any = load_policy(policy.path, trust_remote_code=recipe.model.trust_remote_code).model
    model.to(getattr(torch, recipe.engine.dtype))
    verify(model, Path(policy.path))
    engine = TorchEngine(model, policy.version, recipe.engine)
    try:
        async with serve(engine, port=recipe.runtime.engine_port) as url:
            service = EngineService(engine, ledger, recorder, Presence(ledger, "engine", url=url))
            with ledger.doorbells.hang("engine") as bell:
                while not stop.is_set():
                    await service.tick()
                    await bell.wait(stop)
    finally:
        await engine.close()
        recorder.close()
        ledger.close()


@asynccontextmanager
async def serve(engine: TorchEngine, *, port: int = 0) -> AsyncIterator[str]:
    """Serve inside the block; gives the base URL. Port 0 takes a free one. Raises `SetupError` when it is taken."""
    # handler_cancellation turns a client's hang-up into an abort of its request.
    runner = web.AppRunner(make_app(engine), access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await _listen(runner, port)
        yield f"http://{HOST}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, port: int) -> None:
    try:
        await web.TCPSite(runner, HOST, port).start()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise SetupError(
            f"the engine cannot listen on {HOST}:{port}: the port is in use",
            "set runtime.engine_port to another port, or to 0 for a free one",
        ) from error


class EngineService:
    """What the engine process does besides serving: follow the ledger's policy, report itself, write metrics."""

    def __init__(self, engine: TorchEngine, ledger: Ledger, recorder: Recorder, presence: Presence) -> None:
        self._engine, self._ledger, self._recorder, self._presence = engine, ledger, recorder, presence
        self._refused_version = -1
        self._settled_version = -1
        self._metrics_time = time.monotonic()
        self._metrics_totals = msgspec.structs.replace(engine.counters)

    async def tick(self) -> None:
        """One look at everything. Raises `EngineError` when the engine has ended."""
        version = await self._engine.version()
        policy = self._ledger.latest_policy()
        # Unequal, not only newer: after a roll-back the latest committed policy is an older one.
        if policy.version not in (version, self._refused_version):
            await self._load(policy)
        if policy.version != self._settled_version:
            self._settled_version = policy.version
            self._ledger.mark_settled(policy.version, serving=await self._engine.version())
        if self._engine.active_requests:
            self._presence.working("serving")
        else:
            self._presence.waits("requests", "a rollout asks for its next response")
        self._presence.beat()
        if time.monotonic() - self._metrics_time >= METRICS_SECONDS:
            await self._write_metrics()

    async def _load(self, policy: Policy) -> None:
        """A policy that fails its checks is refused once, loudly; the engine goes on with the one it has."""
        self._presence.working("loading a policy")
        try:
            load = await self._beating(self._engine.load_policy(policy.path, policy.version))
        except CheckpointError as error:
            self._refused_version = policy.version
            self._ledger.event("policy_refused", module="engine", version=policy.version, error=str(error))
            return
        self._recorder.metric("policy_load", **msgspec.structs.asdict(load))

    async def _beating(self, loading: Coroutine[None, None, PolicyLoad]) -> PolicyLoad:
        """Wait while telling the supervisor that the module lives: a large policy loads for minutes."""
        task = asyncio.create_task(loading)
        while not task.done():
            self._presence.beat()
            await asyncio.wait({task}, timeout=1.0)
        return task.result()

    async def _write_metrics(self) -> None:
        now, totals = time.monotonic(), msgspec.structs.replace(self._engine.counters)
        seconds, before = now - self._metrics_time, self._metrics_totals
        self._recorder.metric(
            "engine",
            prompt_tokens_per_second=(totals.prompt_tokens - before.prompt_tokens) / seconds,
            reused_tokens_per_second=(totals.reused_tokens - before.reused_tokens) / seconds,
            generated_tokens_per_second=(totals.generated_tokens - before.generated_tokens) / seconds,
            requests_per_second=(totals.requests - before.requests) / seconds,
            active_requests=self._engine.active_requests,
            version=await self._engine.version(),
        )
        self._metrics_time, self._metrics_totals = now, totals
