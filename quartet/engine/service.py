"""Background work of an engine process: load new policies, report the process's state, write metrics."""

import asyncio
import fcntl
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from quartet.engine.base import PolicyLoad, ServedEngine
from quartet.errors import CheckpointError
from quartet.ledger import Ledger
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.telemetry.spans import Span
from quartet.types import Policy

METRICS_SECONDS = 5.0
LOADING_FILE = "loading.lock"
"""Lock file in the run's folder; an engine holds the lock while it loads a policy."""

T = TypeVar("T")


class EngineService:
    """Policy updates, reported state and metrics of one engine. The caller calls `tick` repeatedly."""

    def __init__(
        self,
        engine: ServedEngine,
        ledger: Ledger,
        recorder: Recorder,
        presence: Presence,
        may_load: Callable[[], bool],
        is_away: Callable[[], bool],
        refused_version: int = -1,
    ) -> None:
        """Follow the ledger's policy, loading a new version only when `may_load` returns True.

        `is_away` returns True while the trainer computes on the engine's device, so that the engine refuses requests.
        `refused_version` is the newest policy's version if the engine rejected it at its start, else -1.
        """
        self._engine, self._ledger, self._recorder, self._presence = engine, ledger, recorder, presence
        self._may_load, self._is_away = may_load, is_away
        self._refused_version = refused_version
        self._settled_version = -1
        self._metrics_time = time.monotonic()
        self._metrics_totals = msgspec.structs.replace(engine.counters)

    @property
    def active_requests(self) -> int:
        """Number of requests that are waiting or running."""
        return self._engine.active_requests

    async def tick(self) -> None:
        """Load a new policy if there is one, report the engine's state, and write metrics when due.

        Raises `EngineError` if the engine has ended.
        """
        policy = self._ledger.policies.latest()
        if await self._follows(policy) and policy.version != self._settled_version:
            self._settled_version = policy.version
            serving = await self._engine.version()
            self._ledger.policies.mark_settled(policy.version, serving=serving, engine=self._presence.module)
        if self._is_away():
            self._presence.waits("the trainer", "its train step on this device ends")
        elif policy.version == self._refused_version:
            self._presence.working(f"serving version {await self._engine.version()}, {policy.version} was rejected")
        elif self._engine.active_requests:
            self._presence.working("serving")
        else:
            self._presence.waits("requests", "a rollout asks for its next response")
        self._presence.beat()
        if time.monotonic() - self._metrics_time >= METRICS_SECONDS:
            await self._write_metrics()

    async def _follows(self, policy: Policy) -> bool:
        """Load the policy if that is due and allowed. Return whether the engine has now loaded or rejected it."""
        # Load any other version, not only a newer one: after a rollback the latest committed policy is older.
        if policy.version in (await self._engine.version(), self._refused_version):
            return True
        if not self._may_load():
            return False
        with turn_to_load(self._ledger.run_dir) as mine:
            if mine:
                await self._load(policy)
        return mine

    async def _load(self, policy: Policy) -> None:
        """Load a policy. If it fails its checks, record the event `policy_refused` and do not try it again.

        The engine then keeps its current policy.
        """
        self._presence.working("loading a policy")
        started = time.time()
        try:
            load = await beating(self._presence, self._engine.load_policy(policy.path, policy.version))
        except CheckpointError as error:
            self._refused_version = policy.version
            self._ledger.event(
                "policy_refused",
                module=self._presence.module,
                policy=policy.name,
                version=policy.version,
                error=str(error),
            )
            return
        self._record(load, started)

    def _record(self, load: PolicyLoad, started: float) -> None:
        """Record metrics and spans of a policy load that began at `started` (Unix seconds) and has just ended."""
        now, trace = time.time(), f"policy {load.version}"
        self._recorder.metric(
            "engine",
            loaded_version=load.version,
            prove_seconds=load.prove_seconds,
            swap_ms=load.swap_ms,
            canary_gap_nats=load.canary_gap,
            read_megabytes=None if load.num_bytes is None else load.num_bytes / 1e6,
        )
        swapped_at = now - load.swap_ms / 1000
        for name, start, end in (("prove", started, swapped_at), ("swap", swapped_at, now)):
            self._recorder.finished(Span(start=start, seconds=end - start, name=name, lane="weights", trace=trace))

    async def _write_metrics(self) -> None:
        now, totals = time.monotonic(), msgspec.structs.replace(self._engine.counters)
        seconds, before = now - self._metrics_time, self._metrics_totals
        self._recorder.metric(
            "engine",
            prompt_tokens_per_second=(totals.prompt_tokens - before.prompt_tokens) / seconds,
            reused_tokens_per_second=(totals.reused_tokens - before.reused_tokens) / seconds,
            recomputed_tokens_per_second=(totals.recomputed_tokens - before.recomputed_tokens) / seconds,
            recompute_ms_per_second=(totals.recompute_ms - before.recompute_ms) / seconds,
            put_back_requests_per_second=(totals.put_back - before.put_back) / seconds,
            generated_tokens_per_second=(totals.generated_tokens - before.generated_tokens) / seconds,
            requests_per_second=(totals.requests - before.requests) / seconds,
            active_requests=self._engine.active_requests,
            version=await self._engine.version(),
        )
        self._metrics_time, self._metrics_totals = now, totals


@contextmanager
def turn_to_load(run_dir: Path) -> Iterator[bool]:
    """Yield whether this engine may load a policy now.

    The engines of a run load one after another, so that the other engines keep decoding. The lock is held until the
    block or the process ends.
    """
    with (run_dir / LOADING_FILE).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


async def beating(presence: Presence, work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, and send heartbeats until it ends, since the start of a server or the load of a large policy takes
    minutes.

    Cancellation cancels `work`.
    """
    task = asyncio.create_task(work)
    try:
        while not task.done():
            presence.beat()
            await asyncio.wait({task}, timeout=1.0)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    return task.result()
