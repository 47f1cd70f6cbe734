"""Run one rollout, from its lease to its record in the ledger.

Failures of the environment, the reward, the engine and the agent loop become statuses, and the ledger decides about the
retry. The `Attempt` holds a worker's state of a running rollout; a crash loses only the response in progress.
"""

import asyncio
import logging
import os
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from quartet.actions.format.base import ActionFormat
from quartet.config import Recipe
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
from quartet.ledger import AppendOutcome, Ledger
from quartet.ledger.blobs import BlobTooLargeError, DamagedBlobError
from quartet.on_progress import no_progress
from quartet.registry import build
from quartet.rollout.ahead import Turnstile
from quartet.rollout.appender import Appender
from quartet.rollout.attempt import Attempt
from quartet.rollout.blind_env import BlindEnv
from quartet.rollout.client import Model, ModelClient, call_seed
from quartet.rollout.forking import Forking
from quartet.rollout.formatted_env import FormattedEnv
from quartet.rollout.guidance.base import Guidance
from quartet.rollout.guided_env import GuidedEnv
from quartet.rollout.loop.base import Limits, loop_of
from quartet.rollout.warm_env import WarmStarts
from quartet.rollout.watch import Watch, WatchedEngine, WatchedEnv
from quartet.telemetry.record import Recorder
from quartet.telemetry.trace import traced
from quartet.types import Beginning, Call, Purpose, RolloutLease, Sampling, Status, Trajectory
from quartet.types.plan import BLIND

LOG = logging.getLogger(__name__)


class RolloutRunner:
    """Runner of leased rollouts. It may run any number of them concurrently."""

    def __init__(
        self, recipe: Recipe, ledger: Ledger, models: Mapping[str, Model], pool: EnvPool, recorder: Recorder
    ) -> None:
        """Prepare the parts that the recipe chooses. `models` are the run's policies by name, the first trained policy
        first."""
        self.name = f"worker-{os.getpid()}"
        self._recipe, self._ledger, self._models, self._pool = recipe, ledger, models, pool
        self._recorder = recorder
        self._loop = loop_of(recipe)
        self._actions: ActionFormat = build(recipe.rollout.actions)
        self._guidance: Guidance = build(recipe.rollout.guidance, recipe, ledger.pool.solved_elsewhere)
        self._forking = Forking(recipe, ledger)
        self._warm_starts = WarmStarts(recipe.env)
        self._appender = Appender(recipe, ledger, recorder)
        self._turnstile = Turnstile(recipe.rollout.max_running)
        self._attempts: dict[tuple[int, int], Attempt] = {}  # by rollout and attempt, as attempts may overlap

    @property
    def attempts(self) -> Collection[Attempt]:
        """The attempts that are running now."""
        return self._attempts.values()

    def begin(self, lease: RolloutLease, lane: str) -> Attempt:
        """Return a new attempt at a leased rollout, with the calls that it does not sample again.

        `lane` is the rollout's row in a timeline.
        """
        watch, beginning, damage = self._watch(lease, lane), Beginning(), None
        try:
            beginning = self._ledger.trajectories.load_beginning(lease)
        except DamagedBlobError as error:
            damage = error
        models = {name: self._client(name, lease, watch, beginning.calls) for name in self._models}
        attempt = Attempt(lease, models, watch, beginning.state, damage)
        self._attempts[lease.rollout_id, lease.attempt] = attempt
        return attempt

    def _client(self, policy: str, lease: RolloutLease, watch: Watch, known: Sequence[Call]) -> ModelClient:
        """Return a rollout's access to a policy. A rollout is forked only at calls of the first trained policy."""
        engine, renderer = self._models[policy]
        conversation, sampling = f"{self.name}/{lease.rollout_id}.{lease.attempt}", _sampling(self._recipe, lease)
        first = policy == self._ledger.trained[0]
        forks = first and lease.purpose is Purpose.TRAIN and self._forking.may_fork
        if not first:  # two players must not draw the same numbers
            sampling = replace(sampling, seed=call_seed(sampling.seed, policy))
            conversation = f"{conversation}/{policy}"
        return ModelClient(
            WatchedEngine(engine, watch),
            renderer,
            sampling=sampling,
            stop_strings=self._recipe.rollout.stop_strings,
            conversation=conversation,
            policy=policy,
            for_training=lease.purpose is Purpose.TRAIN and policy in self._ledger.trained,
            frozen=policy not in self._ledger.trained,
            partial=[call for call in known if call.policy == policy],
            on_call=partial(self._fork_before if forks else self._keep, lease),
            on_diverged=partial(self._ledger.forks.cancel, lease) if first else no_progress,
        )

    async def carry_out(self, attempt: Attempt, session: Env) -> AppendOutcome | None:
        """Run an attempt, append its result to the ledger, and release the session.

        Return None if the lease was lost. A failure of the environment, the reward or the engine, a recall and a
        divergence from the parent become the rollout's status. An exception that Quartet does not define, and a record
        that is too large, become `error_agent`; a lost beginning becomes `damaged`. Any other `QuartetError` is raised.
        """
        lease = attempt.lease
        fields = {"family": lease.task.family, "purpose": lease.purpose, "group": lease.group_id}
        with attempt.watch.span("rollout", **fields), traced(attempt.watch.trace):
            return await self._carry_out(attempt, session)

    async def _carry_out(self, attempt: Attempt, session: Env) -> AppendOutcome | None:
        lease, healthy = attempt.lease, False
        try:
            trajectories = await self._play(attempt, session)
            # A rollout that reached its time limit was cut off inside a request, whose answer may still arrive.
            statuses = {trajectory.status for trajectory in trajectories}
            healthy = statuses.isdisjoint((Status.ERROR_ENV, Status.ERROR_REWARD, Status.TRUNCATED_TIME))
            try:
                return await self._appender.append(attempt, trajectories)
            except BlobTooLargeError as error:
                return await self._appender.append(attempt, [attempt.unfinished(Status.ERROR_AGENT, error)])
        except LeaseLostError as error:
            self._ledger.event("lease_lost", rollout_id=lease.rollout_id, attempt=lease.attempt, error=error.what)
            return None
        except asyncio.CancelledError:
            self._ledger.rollouts.release(lease)
            raise
        finally:
            del self._attempts[lease.rollout_id, lease.attempt]
            try:
                await self._pool.release(session, healthy=healthy)
            except EnvError as error:  # the result of the rollout is stored
                LOG.warning("an environment session could not be released: %s", error)

    async def _play(self, attempt: Attempt, session: Env) -> list[Trajectory]:
        """Run the agent loop and return its trajectories, or one with the status of the recall or failure that ended
        it."""
        if attempt.damage:
            return [attempt.unfinished(Status.DAMAGED, attempt.damage)]
        try:
            return await self._run_loop(attempt, session)
        except DivergedError as error:
            status, cause = Status.DIVERGED, error
        except RecalledError as error:
            status, cause = Status.CANCELLED, error
        except EnvError as error:
            status, cause = Status.ERROR_ENV, error
        except RewardError as error:
            status, cause = Status.ERROR_REWARD, error
        except EngineError as error:
            status, cause = Status.ERROR_ENGINE, error
        except BlobTooLargeError as error:
            status, cause = Status.ERROR_AGENT, error
        except QuartetError:
            raise
        except Exception as error:  # noqa: BLE001  (the agent loop may be user code)
            # The record has the traceback, and the run stops if the error repeats (`rollout.max_identical_errors`).
            status, cause = Status.ERROR_AGENT, error
        return [attempt.unfinished(status, cause)]

    async def _run_loop(self, attempt: Attempt, session: Env) -> list[Trajectory]:
        """Return the loop's trajectories. Raises `ValueError` if they do not fit the run's policies."""
        lease = attempt.lease
        limits = Limits(
            max_turns=lease.max_turns,
            max_tokens=self._recipe.rollout.max_tokens,
            timeout_seconds=self._recipe.rollout.episode_timeout_seconds,
        )
        renderer = next(iter(attempt.models.values())).renderer
        shown = BlindEnv(session) if lease.tag.endswith(BLIND) else session
        formatted = FormattedEnv(self._warm_starts.session(shown, lease.task), self._actions, renderer)
        attempt.session = self._forking.session(WatchedEnv(formatted, attempt.watch), attempt.parent_state)
        session = GuidedEnv(attempt.session, self._guidance) if lease.guided else attempt.session
        async with self._turnstile.turn(attempt, session) as ready:
            trajectories = await self._loop.run(lease.task, ready, attempt.models, limits)
        _check_parts(trajectories, attempt.models)
        unasked = any(model.has_unasked_calls_of_its_parent for model in attempt.models.values())
        if unasked and all(trajectory.status.countable for trajectory in trajectories):
            raise DivergedError("the episode ended before the call at which the child forked from its parent")
        return [replace(trajectory, parent=lease.parent) for trajectory in trajectories]

    async def _keep(self, lease: RolloutLease, call: Call, so_far: Sequence[Call]) -> None:
        """Keep a call for the case that the attempt ends without a trajectory. The next attempt at a rollout that may
        be forked does not continue from it, since it forks anew."""
        self._ledger.journals.append(lease, call)

    async def _fork_before(self, lease: RolloutLease, call: Call, so_far: Sequence[Call]) -> None:
        session = self._attempts[lease.rollout_id, lease.attempt].session
        assert session is not None, "a loop samples with a session"
        await self._forking.fork_before(lease, session, call, so_far)

    def _watch(self, lease: RolloutLease, lane: str) -> Watch:
        """Return a watch that renews the lease at progress, at most five times per `lease_seconds`."""
        lease_seconds = self._recipe.rollout.lease_seconds
        useful_seconds = lease_seconds / 5
        renewed = time.monotonic()

        def renew() -> None:
            nonlocal renewed
            if self._attempts[lease.rollout_id, lease.attempt].recalled:
                return  # the lease may have ended; the sampled calls are about to be stored
            if time.monotonic() - renewed >= useful_seconds:
                self._ledger.rollouts.renew(lease, lease_seconds)
                renewed = time.monotonic()

        spans = self._recorder if lease.rollout_id % self._recipe.observe.rollouts_per_span == 0 else None
        trace = f"rollout {lease.rollout_id}.{lease.attempt}"
        return Watch(renew, spans, poll_seconds=useful_seconds, lane=lane, trace=trace)


def _check_parts(trajectories: Sequence[Trajectory], policies: Collection[str]) -> None:
    """Raise `ValueError` unless there is a trajectory, and each has its own `part` and a policy of the run."""
    parts = [trajectory.part for trajectory in trajectories]
    if not parts or len(set(parts)) < len(parts):
        raise ValueError(f"the agent loop returned the parts {parts}: each trajectory needs its own `part`")
    if unknown := {trajectory.policy for trajectory in trajectories} - set(policies):
        raise ValueError(f"the agent loop returned a trajectory of {min(unknown)!r}, which is no policy of the run")


def _sampling(recipe: Recipe, lease: RolloutLease) -> Sampling:
    """Return the sampling settings: training draws from the whole distribution, evaluation as set in the recipe."""
    sampling = Sampling(temperature=lease.temperature, seed=lease.sampling_seed)
    if lease.purpose is not Purpose.EVAL:
        return sampling
    settings = recipe.evaluation
    return replace(sampling, top_k=settings.top_k, top_p=settings.top_p, min_tokens=settings.min_tokens)
