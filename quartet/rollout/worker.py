"""The rollout worker: as many rollouts at once as there are environment sessions, each one its own coroutine.

A slot takes a session, claims a queued rollout, runs the agent loop, appends the trajectory, and starts again. Nothing
waits for a batch or for the other rollouts of a task. Every failure becomes a status in the ledger, which decides about
the retry; the worker itself keeps nothing that a crash could lose.
"""

import asyncio
import logging
import os
import time
import traceback
from contextlib import suppress
from pathlib import Path

from quartet.config import Recipe
from quartet.data.doorbell import Doorbell
from quartet.data.ledger import AppendOutcome, Ledger
from quartet.env.base import Env, EnvPool
from quartet.env.client import RemoteEnvPool
from quartet.errors import EngineError, EnvError, LeaseLostError, QuartetError
from quartet.observe.presence import Presence
from quartet.observe.receipts import WorkerReceipts
from quartet.observe.record import Recorder
from quartet.rollout.client import ModelClient
from quartet.rollout.engine.base import Engine
from quartet.rollout.loop import make_loop
from quartet.rollout.loop.base import Limits
from quartet.rollout.renderer import Renderer
from quartet.rollout.watch import Watch, WatchedEngine, WatchedEnv
from quartet.types import RolloutLease, Status, Trajectory

LOG = logging.getLogger(__name__)
REPORT_SECONDS = 0.5
ENGINE_PATIENCE_SECONDS = 1.0
"""When every rollout has waited for the engine this long, the worker says that it does."""
ROLLOUTS_PER_SPAN = 16
"""Spans of one rollout in this many are recorded; the sums of every rollout are in its metric."""


class RolloutWorker:
    """Runs queued rollouts until told to stop."""

    def __init__(
        self,
        recipe: Recipe,
        ledger: Ledger,
        engine: Engine,
        pool: EnvPool,
        renderer: Renderer,
        recorder: Recorder,
        presence: Presence,
    ) -> None:
        self._recipe, self._ledger, self._engine, self._pool = recipe, ledger, engine, pool
        self._renderer, self._recorder, self._presence = renderer, recorder, presence
        self._loop = make_loop(recipe.rollout.loop)
        self._receipts = WorkerReceipts(ledger.run_dir, enabled=recipe.runtime.receipts)
        self._name = f"worker-{os.getpid()}"
        self._claiming = asyncio.Lock()
        self._running: dict[tuple[int, int], Watch] = {}  # by rollout and attempt: a lease may come back to us
        self._slots_with_session = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Work in all slots until `stop`; rollouts then in flight go back to the queue.

        Raises, in an exception group, what `run_rollout` raises.
        """
        with self._ledger.doorbells.hang("worker") as bell:
            await self._run(stop, bell)

    async def _run(self, stop: asyncio.Event, bell: Doorbell) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._work(bell)) for _ in range(self._recipe.env.sessions)]
            tasks.append(group.create_task(self._report()))
            await stop.wait()
            for task in tasks:
                task.cancel()

    async def run_queued(self) -> int:
        """Run what is queued, one rollout after the other, and return how many: the synchronous runtime's worker."""
        finished = 0
        while (lease := self._claim()) is not None:
            await self.run_rollout(lease, await self._pool.acquire())
            finished += 1
        return finished

    async def run_rollout(self, lease: RolloutLease, session: Env) -> AppendOutcome | None:
        """One attempt at a task, from reset to the ledger; gives the session back.

        Returns None when the lease was lost on the way. Environment and engine failures become statuses. Any other
        exception is a bug in our loop: it is recorded as `error_agent` and raised.
        """
        watch = self._running[lease.rollout_id, lease.attempt] = self._watch(lease)
        self._explain()
        healthy = False
        try:
            trajectory = await self._attempt(lease, session, watch)
            # A rollout out of time was cut off inside a request, whose answer may still come.
            healthy = trajectory.status not in (Status.ERROR_ENV, Status.TRUNCATED_TIME)
            return self._append(lease, trajectory, watch)
        except LeaseLostError as error:
            self._ledger.event("lease_lost", rollout_id=lease.rollout_id, attempt=lease.attempt, error=error.what)
            return None
        except asyncio.CancelledError:
            self._ledger.give_back(lease)
            raise
        finally:
            del self._running[lease.rollout_id, lease.attempt]
            await self._pool.release(session, healthy=healthy)

    async def _work(self, bell: Doorbell) -> None:
        """One slot: a session first, then a rollout for it, so that no lease runs out while an environment starts."""
        while True:
            try:
                session = await self._pool.acquire()
            except EnvError as error:
                LOG.warning("no environment session: %s", error)
                await asyncio.sleep(REPORT_SECONDS)
                continue
            self._slots_with_session += 1
            try:
                lease = await self._next_lease(session, bell)
            finally:
                self._slots_with_session -= 1
            await self.run_rollout(lease, session)

    async def _next_lease(self, session: Env, bell: Doorbell) -> RolloutLease:
        """Wait for a queued rollout. One slot listens, the others queue up behind it."""
        try:
            async with self._claiming:
                while True:
                    lease = self._claim()
                    if lease is not None:
                        return lease
                    await bell.wait()
        except BaseException:
            await self._pool.release(session, healthy=True)
            raise

    def _claim(self) -> RolloutLease | None:
        leases = self._ledger.claim_rollouts(self._name, 1, self._recipe.rollout.lease_seconds)
        return leases[0] if leases else None

    async def _attempt(self, lease: RolloutLease, session: Env, watch: Watch) -> Trajectory:
        """Run the agent loop; infrastructure failures come back as a trajectory with their status."""
        model = ModelClient(
            WatchedEngine(self._engine, watch),
            self._renderer,
            sampling_seed=lease.sampling_seed,
            temperature=lease.temperature,
            top_p=self._recipe.rollout.top_p,
            conversation=f"{self._name}/{lease.rollout_id}.{lease.attempt}",
        )
        limits = Limits(
            max_turns=lease.max_turns,
            max_tokens=self._recipe.rollout.max_tokens,
            timeout_seconds=self._recipe.rollout.episode_timeout_seconds,
        )
        started = time.monotonic()
        try:
            return await self._loop.run(lease.task, WatchedEnv(session, watch), model, limits)
        except EnvError as error:
            return _failed(lease, model, Status.ERROR_ENV, error, started)
        except EngineError as error:
            return _failed(lease, model, Status.ERROR_ENGINE, error, started)
        except QuartetError:
            raise
        except Exception as error:
            # The one broad except of the rollout service. A bug in our own loop must leave a trace in the ledger, or
            # its rollout would be tried again for ever; it is raised again, so that nobody overlooks it.
            self._ledger.event("error_agent", rollout_id=lease.rollout_id, traceback=traceback.format_exc())
            with suppress(LeaseLostError):
                self._append(lease, _failed(lease, model, Status.ERROR_AGENT, error, started), watch)
            raise

    def _append(self, lease: RolloutLease, trajectory: Trajectory, watch: Watch) -> AppendOutcome:
        self._receipts.appending(lease, trajectory)
        try:
            outcome = self._ledger.append(lease, trajectory, self._recipe.rollout.max_attempts)
        except LeaseLostError:
            self._receipts.appended(lease, "superseded")
            raise
        self._receipts.appended(lease, outcome)
        self._recorder.metric(
            "rollout",
            rollout_id=lease.rollout_id,
            attempt=lease.attempt,
            purpose=lease.purpose,
            family=lease.task.family,
            status=trajectory.status,
            outcome=outcome,
            reward=trajectory.reward,
            success=trajectory.success,
            turns=len(trajectory.turns),
            prompt_tokens=trajectory.num_prompt_tokens,
            response_tokens=trajectory.num_response_tokens,
            wall_seconds=trajectory.wall_seconds,
            **{f"{activity}_seconds": round(seconds, 6) for activity, seconds in watch.seconds.items()},
        )
        return outcome

    def _watch(self, lease: RolloutLease) -> Watch:
        """Renews the lease at progress, but not more often than useful."""
        lease_seconds = self._recipe.rollout.lease_seconds
        renewed = time.monotonic()

        def renew() -> None:
            nonlocal renewed
            if time.monotonic() - renewed >= lease_seconds / 5:
                self._ledger.renew(lease, lease_seconds)
                renewed = time.monotonic()

        spans = self._recorder if lease.rollout_id % ROLLOUTS_PER_SPAN == 0 else None
        return Watch(renew, spans, lease.rollout_id)

    async def _report(self) -> None:
        while True:
            self._explain()
            await asyncio.sleep(REPORT_SECONDS)

    def _explain(self) -> None:
        """Tell what the worker does; it waits only when no slot can go on."""
        watches = self._running.values()
        if watches and all(watch.stuck_in("generate", ENGINE_PATIENCE_SECONDS) for watch in watches):
            self._presence.waits("the engine", "it answers a generation")
        elif watches:
            self._presence.working(f"running {len(watches)} rollouts")
        elif self._slots_with_session:
            self._presence.waits("queued rollouts", "control admits a group")
        else:
            self._presence.waits("an environment session", "the environment host answers")
        self._presence.beat()


async def run_worker(recipe: Recipe, run_dir: Path, stop: asyncio.Event) -> None:
    """The rollout module as a process: work until `stop`. Finds engine and environment host through the ledger."""
    from quartet.policy.load import load_tokenizer
    from quartet.rollout.engine.http import HttpEngine

    ledger = Ledger.open(run_dir)
    recorder = Recorder(run_dir, "worker")
    engine = HttpEngine(lambda: ledger.module_url("engine"))
    pool = RemoteEnvPool(
        lambda: ledger.module_url("env"),
        recipe.env.sessions,
        request_timeout_seconds=recipe.env.step_timeout_seconds,
    )
    try:
        presence = Presence(ledger, "worker")
        folder = Path(ledger.latest_policy().path)
        renderer = Renderer(load_tokenizer(folder, trust_remote_code=recipe.model.trust_remote_code))
        await RolloutWorker(recipe, ledger, engine, pool, renderer, recorder, presence).run(stop)
    finally:
        await pool.close()
        await engine.close()
        recorder.close()
        ledger.close()


def _failed(lease: RolloutLease, model: ModelClient, status: Status, error: Exception, started: float) -> Trajectory:
    """The record of an attempt that infrastructure ended; it keeps what was sampled, and has no reward."""
    return Trajectory(
        task=lease.task,
        status=status,
        calls=model.calls,
        turns=[],
        rewards={},
        success=False,
        error=f"{type(error).__name__}: {error}",
        wall_seconds=time.monotonic() - started,
    )
