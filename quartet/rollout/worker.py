"""Rollout worker: run one rollout per environment session concurrently, each in its own coroutine. Several workers
share the sessions of all environment hosts (`members.py`).

A slot acquires a session, claims a queued rollout, runs it (`runner.py`), and repeats. A slot waits neither for a batch
nor for other rollouts of its task. A rollout that is paused is recalled and requeued with its sampled tokens. A rollout
that is no longer needed is recalled and not requeued.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path

from quartet.access.place import client_tls
from quartet.access.token import run_token
from quartet.config import Recipe
from quartet.env.base import Env, EnvPool
from quartet.env.client import RemoteEnvPool
from quartet.env.deadlines import Deadlines
from quartet.env.opening import opening
from quartet.errors import EnvError
from quartet.ledger import AppendOutcome, Ledger
from quartet.ledger.notifications import Subscription
from quartet.manager.straggler.base import StragglerRule
from quartet.policy.renderer import Renderer
from quartet.registry import build
from quartet.rollout.attempt import recall_unwanted
from quartet.rollout.client import Model
from quartet.rollout.members import Members
from quartet.rollout.runner import RolloutRunner
from quartet.telemetry.activities import WAIT
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.types import Purpose, RolloutLease
from quartet.types.phase import TRAINING, wait_in

LOG = logging.getLogger(__name__)
REPORT_SECONDS = 0.5
ENGINE_MEMORY = "memory of the engines"
ENGINE_SILENCE_SECONDS = 1.0
"""Time in seconds for which all running rollouts must have waited for the engine before the worker reports this
wait."""
PINGS = 4
"""Number of pings within the time after which an environment host releases the session of a silent worker."""


class RolloutWorker:
    """Worker that runs queued rollouts until it is stopped."""

    def __init__(
        self,
        recipe: Recipe,
        ledger: Ledger,
        models: Mapping[str, Model],
        pool: EnvPool,
        recorder: Recorder,
        presence: Presence,
        members: Members | None = None,
    ) -> None:
        """Run rollouts in `env.sessions` slots, or in as many as `members` says."""
        self._members = members
        self._recipe, self._ledger, self._pool = recipe, ledger, pool
        self._recorder, self._presence = recorder, presence
        self._runner = RolloutRunner(recipe, ledger, models, pool, recorder)
        self._stragglers: StragglerRule = build(recipe.straggler, recipe)
        self._claiming = asyncio.Lock()
        self._notified = asyncio.Event()
        self._paused = self._engines_are_full = False
        self._slots_with_session = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Work in all slots until `stop` is set; then requeue the rollouts in flight.

        Raises the errors of `RolloutRunner.carry_out` in an exception group.
        """
        with self._ledger.notifier.subscribe("worker") as notifications:
            await self._run(stop, notifications)

    async def _run(self, stop: asyncio.Event, notifications: Subscription) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._report()), group.create_task(self._listen(notifications))]
            slots: list[asyncio.Task[None]] = []
            while not stop.is_set():
                wanted = await self._members.follow() if self._members else self._recipe.env.sessions
                new = range(len(slots), wanted)  # of fewer sessions than slots, the pool lets some slots wait
                slots += [group.create_task(self._work(f"session {number}")) for number in new]
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), REPORT_SECONDS)
            for task in (*tasks, *slots):
                task.cancel()

    async def run_queued(self, after_each: Callable[[], None] = lambda: None) -> int:
        """Run all queued rollouts one after another and return their number; used by the synchronous runtime."""
        finished = 0
        while True:
            session, lease = await self._session(), None
            try:
                lease = self.claim()
            finally:
                if lease is None:
                    await self._pool.release(session, healthy=True)
            if lease is None:
                return finished
            await self.run_rollout(lease, session)
            after_each()
            finished += 1

    async def run_rollout(self, lease: RolloutLease, session: Env, lane: str = "session 0") -> AppendOutcome | None:
        """Run one claimed rollout in a session of the pool; see `RolloutRunner.carry_out`."""
        attempt = self._runner.begin(lease, lane)
        self._explain()
        return await self._runner.carry_out(attempt, session)

    async def _work(self, lane: str) -> None:
        """Run one slot. It acquires a session before it claims a rollout, so that no lease is held while no host has
        room."""
        while True:
            with self._recorder.span(WAIT, lane=lane, reason="an environment session"):
                session = await self._session()
            await self.run_rollout(await self._lease_for(session, lane), session, lane)

    async def _session(self) -> Env:
        """Acquire a session; after an `EnvError` try again."""
        while True:
            try:
                return await self._pool.acquire()
            except EnvError as error:
                LOG.warning("cannot acquire an environment session: %s", error)
            await asyncio.sleep(REPORT_SECONDS)

    async def _lease_for(self, session: Env, lane: str) -> RolloutLease:
        """Wait for a queued rollout. If the worker ends first, release the session."""
        self._slots_with_session += 1
        try:
            with self._recorder.span(WAIT, lane=lane, reason="a queued rollout"):
                return await self._next_lease()
        except BaseException:
            await self._pool.release(session, healthy=True)
            raise
        finally:
            self._slots_with_session -= 1

    async def _next_lease(self) -> RolloutLease:
        """Claim the next rollout. One slot polls the ledger, at every notification, while the other slots wait."""
        async with self._claiming:
            self._notified.clear()
            while (lease := self.claim()) is None:
                await self._notified.wait()
                self._notified.clear()
            return lease

    def claim(self) -> RolloutLease | None:
        """Claim the next queued rollout for `run_rollout`.

        Return None if none is queued, the rule pauses them, or the engines have no memory for more requests.
        """
        self._engines_are_full = self._members is not None and not self._members.engines_have_room
        if self._engines_are_full:
            return None
        self._paused = self._stragglers.pauses_training(self._ledger)
        leases = self._ledger.rollouts.claim(
            self._runner.name, 1, self._recipe.rollout.lease_seconds, training=not self._paused
        )
        return leases[0] if leases else None

    async def _listen(self, notifications: Subscription) -> None:
        """Handle each notification or its timeout: wake a waiting slot, and recall unwanted rollouts."""
        while True:
            self._notified.set()
            if self._runner.attempts:
                self._paused = self._stragglers.pauses_training(self._ledger)
                await recall_unwanted(self._runner.attempts, self._ledger, paused=self._paused)
            await notifications.wait()

    async def _report(self) -> None:
        while True:
            self._explain()
            await asyncio.sleep(REPORT_SECONDS)

    def _explain(self) -> None:
        """Report the worker's state, which is a wait only if no slot can continue."""
        watches = [attempt.watch for attempt in self._runner.attempts if not attempt.waits_for_turn]
        if watches and all(watch.stuck_in("generate", ENGINE_SILENCE_SECONDS) for watch in watches):
            self._presence.waits("the engine", "it answers a request")
        elif watches:
            running = _running([attempt.lease for attempt in self._runner.attempts])
            held_back = self._slots_with_session and self._engines_are_full
            self._presence.working(f"{running}; further ones wait for {ENGINE_MEMORY}" if held_back else running)
        elif self._slots_with_session and self._paused:
            self._presence.waits("the next policy", "the batch is trained and the engine serves its policy")
        elif self._slots_with_session and self._engines_are_full:
            self._presence.waits(ENGINE_MEMORY, "a request ends")
        elif self._slots_with_session:
            phase = self._ledger.value("phase", TRAINING)
            self._presence.waits(*wait_in(phase, "queued rollouts", "control admits a group"))
        else:
            self._presence.waits("an environment session", "the environment host answers")
        self._presence.beat()


async def run_worker(recipe: Recipe, run_dir: Path, stop: asyncio.Event, module: str = "worker") -> None:
    """Run the rollout worker named `module` (`Recipe.worker_modules`) as a process until `stop` is set; find engines
    and environment hosts through the ledger."""
    from quartet.engine.connect import EngineClients

    with closing(Ledger.open(run_dir)) as ledger, Recorder(run_dir, module) as recorder:
        clients = {name: EngineClients(recipe, ledger.of(name)) for name in (*ledger.trained, *ledger.frozen)}
        pool = RemoteEnvPool(
            lambda: [member.url for member in ledger.modules.members("env") if member.url],
            recipe.env.sessions,
            token=run_token(run_dir),
            request_timeout_seconds=recipe.env.step_timeout_seconds,
            reset_timeout_seconds=Deadlines.of(recipe.env).opening,
            ping_seconds=recipe.rollout.episode_timeout_seconds / PINGS,
            tls=client_tls(recipe.runtime.tls.trusted),
        )
        try:
            presence = Presence(ledger.modules, module, recorder=recorder)
            renderers = {name: make_renderer(recipe, ledger.of(name)) for name in clients}
            models = {name: Model(one.router, renderers[name]) for name, one in clients.items()}
            members = Members(ledger, module, pool, list(clients.values()))
            await RolloutWorker(recipe, ledger, models, pool, recorder, presence, members).run(stop)
        finally:
            await pool.close()
            for one in clients.values():
                await one.router.close()


def make_renderer(recipe: Recipe, ledger: Ledger) -> Renderer:
    """Return the renderer of the newest policy whose files are complete, as the engine serves it.

    Raises `UnusablePolicyError`.
    """
    from quartet.policy.files import from_newest_whole, raising_checkpoint_errors
    from quartet.policy.kind.find import load_pictures
    from quartet.policy.tokenizer_files import end_token_ids, load_tokenizer, set_template_arguments

    def load(folder: Path) -> Renderer:
        tokenizer = load_tokenizer(folder, trust_remote_code=recipe.model.trust_remote_code)
        set_template_arguments(tokenizer, recipe.model.template_arguments)
        with raising_checkpoint_errors(f"cannot use the tokenizer in {folder}"):
            ends = end_token_ids(folder)
            return Renderer(tokenizer, load_pictures(folder), opening(recipe, tokenizer), ends)

    return from_newest_whole([ledger.run_dir / policy.path for policy in ledger.policies.loadable()], load)


def _running(leases: list[RolloutLease]) -> str:
    """Return the number and purpose of the running rollouts, in words."""
    held_out = sum(lease.purpose is Purpose.EVAL for lease in leases)
    if held_out == len(leases):
        return f"running {held_out} episodes of an evaluation"
    return f"running {len(leases)} rollouts" + (f", {held_out} of an evaluation" if held_out else "")
