"""Reader of the format `quartet-trajectory-1`, which Quartet wrote before schema 6."""

from msgspec import Struct

from quartet.exchange.fingerprint import Fingerprint
from quartet.exchange.record import Provenance, TrajectoryRecord
from quartet.ledger.former_records import FormerCall, FormerTrajectory, FormerTurn
from quartet.types import FinishReason, Sampling, Status, Task


class FormerCallRecord(Struct, frozen=True, kw_only=True):
    """Call whose prompt and response are one sequence."""

    policy: str
    token_ids: list[int]  # [num_tokens], first the prompt, then the response
    response_mask: list[int]  # [num_tokens], 0 at the prompt, 1 at the response
    logprobs: list[float]
    versions: list[int]
    entropies: list[float] = []
    cache_versions: list[int] = []
    sampling: Sampling
    finish_reason: FinishReason

    def former(self) -> FormerCall:
        responses = sum(self.response_mask)
        prompts = len(self.token_ids) - responses
        if self.response_mask != [0] * prompts + [1] * responses:
            raise ValueError("a call's response_mask is not one 0 per prompt token and then one 1 per response token")
        return FormerCall(
            policy=self.policy,
            prompt_ids=self.token_ids[:prompts],
            response_ids=self.token_ids[prompts:],
            logprobs=self.logprobs,
            versions=self.versions,
            entropies=self.entropies,
            cache_versions=self.cache_versions,
            sampling=self.sampling,
            finish_reason=self.finish_reason,
        )


class FormerRecord(Struct, frozen=True, kw_only=True, tag_field="format", tag="quartet-trajectory-1"):
    """Trajectory with its provenance and its fingerprint, in the former format."""

    task: Task
    status: Status
    success: bool
    rewards: dict[str, float]
    calls: list[FormerCallRecord]
    turns: list[FormerTurn]
    error: str
    traceback: str = ""
    wall_seconds: float
    provenance: Provenance
    fingerprint: Fingerprint | None

    def current(self) -> TrajectoryRecord:
        """Return the record in the current format. Raise `ValueError` if the lengths of a call's lists do not match."""
        trajectory = FormerTrajectory(
            task=self.task,
            status=self.status,
            calls=[call.former() for call in self.calls],
            turns=self.turns,
            rewards=self.rewards,
            success=self.success,
            error=self.error,
            traceback=self.traceback,
            wall_seconds=self.wall_seconds,
        )
        return TrajectoryRecord.of(trajectory.current(), self.provenance, self.fingerprint)


def current(record: TrajectoryRecord | FormerRecord) -> TrajectoryRecord:
    """Return a record of either format in the current format. Raise `ValueError` as `FormerRecord.current` does."""
    return record.current() if isinstance(record, FormerRecord) else record
