"""End an attempt: write its result into the ledger, with a metric and, for the audit, a receipt."""

import asyncio
from collections.abc import Sequence

from quartet.config import Recipe
from quartet.errors import LeaseLostError
from quartet.ledger import AppendOutcome, Ledger
from quartet.manager.straggler.base import StragglerRule
from quartet.registry import build
from quartet.rollout.attempt import Attempt
from quartet.telemetry.receipts import WorkerReceipts
from quartet.telemetry.record import Recorder
from quartet.types import Purpose, RolloutLease, Status, Trajectory


class Appender:
    """Writer of attempts to the ledger."""

    def __init__(self, recipe: Recipe, ledger: Ledger, recorder: Recorder) -> None:
        self._ledger, self._recorder = ledger, recorder
        stragglers: StragglerRule = build(recipe.straggler, recipe)
        self._max_attempts, self._max_recycles = recipe.rollout.max_attempts, stragglers.max_recycles
        self._receipts = WorkerReceipts(ledger.run_dir, enabled=recipe.runtime.receipts)

    async def append(self, attempt: Attempt, trajectories: Sequence[Trajectory]) -> AppendOutcome:
        """Store all trajectories of a finished or recalled rollout.

        Raises `LeaseLostError` if another worker holds the rollout, and `BlobTooLargeError`.
        """
        lease = attempt.lease
        # Examined here and not while they are stored, so that the metrics agree with what is stored.
        parts = [self._ledger.trajectories.examined(part) for part in trajectories]
        trajectory = next((part for part in parts if part.policy == lease.policy), parts[0])
        with attempt.watch.span("append"):
            if trajectory.status is Status.CANCELLED:
                outcome = self._ledger.trajectories.recycle(lease, trajectory, self._max_recycles)
            else:
                outcome = await self._finish(lease, parts)
        self._recorder.metric(
            "rollout",
            rollout_id=lease.rollout_id,
            attempt=lease.attempt,
            purpose=lease.purpose,
            family=lease.task.family,
            status=trajectory.status,
            outcome=outcome,
            **_score(lease, trajectory),
            turns=len(trajectory.turns),
            prompt_tokens=sum(part.num_prompt_tokens for part in parts),
            response_tokens=sum(part.num_response_tokens for part in parts),
            recycled=lease.recycled,
            continued_calls=sum(model.continued_calls for model in attempt.models.values()),
            diverged=any(model.diverged for model in attempt.models.values()),
            wall_seconds=trajectory.wall_seconds,
            **{f"{activity}_seconds": round(seconds, 6) for activity, seconds in attempt.watch.seconds.items()},
        )
        return outcome

    async def _finish(self, lease: RolloutLease, parts: Sequence[Trajectory]) -> AppendOutcome:
        pack = self._ledger.store.pack
        if any(part.has_pictures for part in parts):  # encoding must not block other rollouts
            packed = [await asyncio.to_thread(pack, part) for part in parts]
        else:
            packed = [pack(part) for part in parts]
        for part in parts:
            self._receipts.appending(lease, part)
        try:
            outcome = self._ledger.trajectories.append(lease, parts[0], self._max_attempts, parts[1:], packed)
        except LeaseLostError:
            self._receipts.appended(lease, "superseded")
            raise
        self._receipts.appended(lease, outcome)
        return outcome


def _score(lease: RolloutLease, trajectory: Trajectory) -> dict[str, float]:
    """Return the metrics `reward` and `success`, named `evaluation_...` for evaluations and `guided_...` for guided
    rollouts; {} for a status that does not count."""
    if not trajectory.status.countable:
        return {}
    score = {"reward": trajectory.reward, "success": float(trajectory.success)}
    if lease.purpose is not Purpose.TRAIN:
        return {f"evaluation_{name}": value for name, value in score.items()}
    if lease.guided:
        return {f"guided_{name}": value for name, value in score.items()}
    cut_off = trajectory.status in (Status.TRUNCATED_TURNS, Status.TRUNCATED_TOKENS)
    return score | {"truncated": float(cut_off)}
