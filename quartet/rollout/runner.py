"""One rollout, from its lease to the ledger.

Every failure becomes a status, and the ledger decides about the retry. What a worker keeps of a rollout at work is its
`Attempt`, nothing that a crash could lose.
"""

import asyncio
import os
import time
from collections.abc import Collection, Sequence
from functools import partial

from msgspec.structs import replace

from quartet.config import Recipe
from quartet.data.blobs import DamagedBlobError
from quartet.data.ledger import AppendOutcome, Ledger
from quartet.env.base import Env, EnvPool
from quartet.errors import (
    DivergedError,
    EngineError,
    EnvError,
    LeaseLostError,
    QuartetError,
    RecalledError,
    RewardError,
)
from quartet.observe.record import Recorder
from quartet.observe.trace import traced
from quartet.registry import build
from quartet.rollout.appender import Appender
from quartet.rollout.attempt import Attempt
from quartet.rollout.client import ModelClient
from quartet.rollout.engine.base import Engine
from quartet.rollout.forking import Forking
from quartet.rollout.loop.base import AgentLoop, Limits
from quartet.rollout.renderer import Renderer
from quartet.rollout.watch import Watch, WatchedEngine, WatchedEnv
from quartet.types import Call, Purpose, RolloutLease, Sampling, Status, Trajectory


class RolloutRunner:
    """Carries out leased rollouts, any number at a time."""

    def __init__(
        self, recipe: Recipe, ledger: Ledger, engine: Engine, pool: EnvPool, renderer: Renderer, recorder: Recorder
    ) -> None:
        self.name = f"worker-{os.getpid()}"
        self._recipe, self._ledger, self._engine, self._pool = recipe, ledger, engine, pool
        self._renderer, self._recorder = renderer, recorder
        self._loop: AgentLoop = build(recipe.rollout.loop)
        self._forking = Forking(recipe, ledger)
        self._appender = Appender(recipe, ledger, recorder)
        self._attempts: dict[tuple[int, int], Attempt] = {}  # by rollout and attempt: a lease may come back to us

    @property
    def attempts(self) -> Collection[Attempt]:
        """Those at work now."""
        return self._attempts.values()

    def begin(self, lease: RolloutLease, lane: str) -> Attempt:
        """Take up a leased rollout, at what an earlier attempt left of it. `lane` is its row in a timeline."""
        watch, damage = self._watch(lease, lane), None
        try:
            known = self._ledger.load_partial(lease)
        except DamagedBlobError as error:
            known, damage = [], error
        model = ModelClient(
            WatchedEngine(self._engine, watch),
            self._renderer,
            sampling=_sampling(self._recipe, lease),
            stop_strings=self._recipe.rollout.stop_strings,
            conversation=f"{self.name}/{lease.rollout_id}.{lease.attempt}",
            for_training=lease.purpose is Purpose.TRAIN,
            partial=known,
            on_call=partial(self._after_call, lease),
            on_diverged=partial(self._ledger.drop_forks, lease),
        )
        attempt = self._attempts[lease.rollout_id, lease.attempt] = Attempt(lease, model, watch, damage)
        return attempt

    async def carry_out(self, attempt: Attempt, session: Env) -> AppendOutcome | None:
        """From reset to the ledger; gives the session back.

        Returns None when the lease was lost on the way. Failures of environment, reward and engine become statuses, and
        so does any other exception of the agent loop (`error_agent`).
        """
        lease = attempt.lease
        fields = {"family": lease.task.family, "purpose": lease.purpose, "group": lease.group_id}
        with attempt.watch.span("rollout", **fields), traced(attempt.watch.trace):
            return await self._carry_out(attempt, session)

    async def _carry_out(self, attempt: Attempt, session: Env) -> AppendOutcome | None:
        lease, healthy = attempt.lease, False
        try:
            trajectory = await self._play(attempt, session)
            # A rollout out of time was cut off inside a request, whose answer may still come.
            healthy = trajectory.status not in (Status.ERROR_ENV, Status.ERROR_REWARD, Status.TRUNCATED_TIME)
            return await self._appender.append(attempt, trajectory)
        except LeaseLostError as error:
            self._ledger.event("lease_lost", rollout_id=lease.rollout_id, attempt=lease.attempt, error=error.what)
            return None
        except asyncio.CancelledError:
            self._ledger.give_back(lease)
            raise
        finally:
            del self._attempts[lease.rollout_id, lease.attempt]
            await self._pool.release(session, healthy=healthy)

    async def _play(self, attempt: Attempt, session: Env) -> Trajectory:
        """Run the agent loop; a recall and infrastructure failures come back as a trajectory with their status."""
        lease = attempt.lease
        if attempt.damage:
            return attempt.unfinished(Status.DAMAGED, attempt.damage)
        limits = Limits(
            max_turns=lease.max_turns,
            max_tokens=self._recipe.rollout.max_tokens,
            timeout_seconds=self._recipe.rollout.episode_timeout_seconds,
        )
        try:
            trajectory = await self._loop.run(lease.task, WatchedEnv(session, attempt.watch), attempt.model, limits)
            if trajectory.status.countable and attempt.model.has_unasked_calls_of_its_parent:
                raise DivergedError("the episode ended before the call at which the child leaves its parent")
            return replace(trajectory, parent=lease.parent)
        except DivergedError as error:
            return attempt.unfinished(Status.DIVERGED, error)
        except RecalledError as error:
            return attempt.unfinished(Status.CANCELLED, error)
        except EnvError as error:
            return attempt.unfinished(Status.ERROR_ENV, error)
        except RewardError as error:
            return attempt.unfinished(Status.ERROR_REWARD, error)
        except EngineError as error:
            return attempt.unfinished(Status.ERROR_ENGINE, error)
        except QuartetError:
            raise
        except Exception as error:  # noqa: BLE001  (the agent loop may be anybody's code)
            # Its traceback is in the record, and the run stops when the error repeats: `rollout.max_identical_errors`.
            return attempt.unfinished(Status.ERROR_AGENT, error)

    def _after_call(self, lease: RolloutLease, call: Call, so_far: Sequence[Call]) -> None:
        if lease.purpose is Purpose.TRAIN:
            self._forking.fork_before(lease, call, so_far)

    def _watch(self, lease: RolloutLease, lane: str) -> Watch:
        """Renews the lease at progress, but not more often than useful."""
        lease_seconds = self._recipe.rollout.lease_seconds
        useful_seconds = lease_seconds / 5
        renewed = time.monotonic()

        def renew() -> None:
            nonlocal renewed
            if self._attempts[lease.rollout_id, lease.attempt].model.recalled:
                return  # the lease may be over; what there is, is about to be handed back
            if time.monotonic() - renewed >= useful_seconds:
                self._ledger.renew(lease, lease_seconds)
                renewed = time.monotonic()

        spans = self._recorder if lease.rollout_id % self._recipe.observe.rollouts_per_span == 0 else None
        trace = f"rollout {lease.rollout_id}.{lease.attempt}"
        return Watch(renew, spans, look_seconds=useful_seconds, lane=lane, trace=trace)


def _sampling(recipe: Recipe, lease: RolloutLease) -> Sampling:
    """Training draws from the whole distribution, evaluation from the part of it that the recipe names."""
    sampling = Sampling(temperature=lease.temperature, seed=lease.sampling_seed)
    if lease.purpose is not Purpose.EVAL:
        return sampling
    knobs = recipe.evaluation
    return replace(sampling, top_k=knobs.top_k, top_p=knobs.top_p, min_tokens=knobs.min_tokens)
