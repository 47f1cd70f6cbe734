"""One attempt at a rollout while it is at work: its lease, its model, and where its time goes."""

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

PATIENCE_SECONDS = 1.0


@dataclass(eq=False)
class Attempt:
    """What the worker knows of a rollout that it runs."""

    lease: RolloutLease
    models: Mapping[str, ModelClient]
    """By policy, the first trained one first."""
    watch: Watch
    parent_state: EpisodeState | None = None
    """State of the parent's environment that a child begins in; None where the rollout begins with a reset."""
    damage: DamagedBlobError | None = None
    """Set when what a child begins with is lost."""
    session: Env | None = None
    """What the agent loop acts in, once it runs."""
    started: float = field(default_factory=time.monotonic)

    @property
    def recalled(self) -> bool:
        """Whether it was told to stop."""
        return any(model.recalled for model in self.models.values())

    async def recall(self) -> None:
        """Stop at the next token, whatever policy samples it. Raises `EngineError` when an engine cannot be reached."""
        await asyncio.gather(*(model.recall() for model in self.models.values()))

    def unfinished(self, status: Status, error: Exception) -> Trajectory:
        """The record of an attempt that did not come to its end; it keeps what was sampled, by any policy, and has no
        reward."""
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
    """One line, and the traceback where somebody's code raised it."""
    if isinstance(error, EnvFaultError):
        return error.what, error.traceback
    if isinstance(error, QuartetError):
        return f"{type(error).__name__}: {error}", ""
    fault = fault_of(error)
    return fault.summary, fault.traceback


async def recall_unwanted(attempts: Iterable[Attempt], ledger: Ledger, *, rests: bool) -> None:
    """Recall those whose lease has ended, because their group closed or somebody else has it, and, when training
    `rests`, all that are not of an evaluation."""
    attempts = list(attempts)
    held = ledger.held(attempt.lease for attempt in attempts)
    unwanted = [
        attempt
        for attempt in attempts
        if (attempt.lease.rollout_id, attempt.lease.attempt) not in held
        or (rests and attempt.lease.purpose is Purpose.TRAIN)
    ]
    # An engine that does not answer is asked again at the next look; the others must not wait for it.
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*(_recall(attempt) for attempt in unwanted))


async def _recall(attempt: Attempt) -> None:
    with suppress(EngineError):  # the attempt's own generation meets it too, and says so
        await attempt.recall()
