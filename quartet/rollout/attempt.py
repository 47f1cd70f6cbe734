"""One running attempt at a rollout: its lease, its models, and its times."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from quartet.env.base import Env
from quartet.errors import EngineError, EnvFaultError, QuartetError
from quartet.fault import fault_of
from quartet.ledger import Ledger
from quartet.ledger.blobs import DamagedBlobError
from quartet.rollout.client import ModelClient
from quartet.rollout.watch import Watch
from quartet.types import EpisodeState, Purpose, RolloutLease, Status, Trajectory

TIMEOUT_SECONDS = 1.0
"""Timeout of one round of recalls."""


@dataclass(eq=False)
class Attempt:
    """State of a running rollout in the worker."""

    lease: RolloutLease
    models: Mapping[str, ModelClient]
    """Models by policy name, the first trained policy first."""
    watch: Watch
    parent_state: EpisodeState | None = None
    """State of the parent's environment in which a fork begins; None if the rollout begins with a reset."""
    damage: DamagedBlobError | None = None
    """Error if the calls or the state with which the attempt begins are lost, else None."""
    session: Env | None = None
    """Session of the agent loop while it runs."""
    waits_for_turn: bool = False
    """True while it waits, with its environment reset, for one of `rollout.max_running` other rollouts to end."""
    started: float = field(default_factory=time.monotonic)
    _recall: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def recalled(self) -> bool:
        """True once the attempt was recalled."""
        return self._recall.is_set()

    async def wait_for_recall(self) -> None:
        """Wait until the attempt is recalled, perhaps for ever."""
        await self._recall.wait()

    async def recall(self) -> None:
        """Stop the attempt at the next token of each policy, or while it waits for its turn. Raises `EngineError` if an
        engine cannot be reached."""
        self._recall.set()
        await asyncio.gather(*(model.recall() for model in self.models.values()))

    def unfinished(self, status: Status, error: Exception) -> Trajectory:
        """Return the record of an attempt that ended early: the sampled calls of all policies, and no reward."""
        recalled = status is Status.CANCELLED
        error_text, trace = ("", "") if recalled else _described(error)
        return Trajectory(
            task=self.lease.task,
            status=status,
            calls=[call for model in self.models.values() for call in (model.sampled if recalled else model.calls)],
            turns=[],
            rewards={},
            success=False,
            error=error_text,
            traceback=trace,
            wall_seconds=time.monotonic() - self.started,
            policy=self.lease.policy,
            parent=self.lease.parent,
        )


def _described(error: Exception) -> tuple[str, str]:
    """Return a one-line description, and the traceback of an error that Quartet did not raise itself."""
    if isinstance(error, EnvFaultError):
        return error.what, error.traceback
    if isinstance(error, QuartetError):
        return f"{type(error).__name__}: {error}", ""
    fault = fault_of(error)
    return fault.summary, fault.traceback


async def recall_unwanted(attempts: Iterable[Attempt], ledger: Ledger, *, paused: bool) -> None:
    """Recall attempts that no longer hold their lease, because their group closed or another worker has the rollout.

    If training is paused (`paused`), recall all training attempts too.
    """
    attempts = list(attempts)
    held = ledger.rollouts.held(attempt.lease for attempt in attempts)
    unwanted = [
        attempt
        for attempt in attempts
        if (attempt.lease.rollout_id, attempt.lease.attempt) not in held
        or (paused and attempt.lease.purpose is Purpose.TRAIN)
    ]
    # An unreachable engine is retried at the next poll; the other attempts must not wait for it.
    with suppress(TimeoutError):
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.gather(*(_recall(attempt) for attempt in unwanted))


async def _recall(attempt: Attempt) -> None:
    with suppress(EngineError):  # the attempt's own generation fails with it too and reports it
        await attempt.recall()
