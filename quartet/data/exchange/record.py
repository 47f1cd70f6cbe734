"""A trajectory as it leaves the ledger: everything it holds, where it came from, and what its tokens mean."""

from typing import Any

from msgspec import Struct, structs

from quartet.data.exchange.fingerprint import Fingerprint
from quartet.types import Call, FinishReason, Purpose, Sampling, Status, Task, Trajectory, Turn


class CallRecord(Struct, frozen=True, kw_only=True):
    """One generation. Prompt and response as one sequence, as a trainer reads it."""

    policy: str
    token_ids: list[int]  # [num_tokens], the prompt's, then the response's
    response_mask: list[int]  # [num_tokens], 1 at the response: only these tokens are ever trained
    logprobs: list[float]  # [num_response_tokens], in nats; [] for a demonstration
    versions: list[int]  # [num_response_tokens], policy version that sampled each token; [] for a demonstration
    entropies: list[float] = []  # [num_response_tokens], in nats; [] where nobody noted them
    cache_versions: list[int] = []  # [num_response_tokens], oldest version in each token's cache; [] where its own
    sampling: Sampling
    finish_reason: FinishReason


class Provenance(Struct, frozen=True, kw_only=True):
    """Where a trajectory came from."""

    run: str
    """Name of the run's folder."""
    purpose: Purpose
    rollout_id: int
    group_id: int
    attempt: int
    created_at: float
    """Unix seconds."""


class TrajectoryRecord(Struct, frozen=True, kw_only=True, tag_field="format", tag="quartet-trajectory-1"):
    """`quartet.types.Trajectory`, field by field, with its reward summed up, its provenance and its fingerprint."""

    task: Task
    status: Status
    success: bool
    reward: float
    rewards: dict[str, float]
    calls: list[CallRecord]
    turns: list[Turn]
    error: str
    traceback: str = ""
    wall_seconds: float
    parent: str | None
    provenance: Provenance
    fingerprint: Fingerprint | None
    """None for a run that recorded none: its trajectories can be read, but not be replayed elsewhere."""

    @classmethod
    def of(cls, trajectory: Trajectory, provenance: Provenance, fingerprint: Fingerprint | None) -> "TrajectoryRecord":
        fields: dict[str, Any] = structs.asdict(trajectory)
        fields |= {"calls": [_call_record(call) for call in trajectory.calls]}
        return cls(**fields, reward=trajectory.reward, provenance=provenance, fingerprint=fingerprint)

    def trajectory(self) -> Trajectory:
        """The trajectory as it was. Raises `ValueError` when lists of a call do not fit each other."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in Trajectory.__struct_fields__}
        fields["calls"] = [_call(call) for call in self.calls]
        return Trajectory(**fields)


def _call_record(call: Call) -> CallRecord:
    return CallRecord(
        policy=call.policy,
        token_ids=call.prompt_ids + call.response_ids,
        response_mask=[0] * len(call.prompt_ids) + [1] * len(call.response_ids),
        logprobs=call.logprobs,
        versions=call.versions,
        entropies=call.entropies,
        cache_versions=call.cache_versions,
        sampling=call.sampling,
        finish_reason=call.finish_reason,
    )


def _call(record: CallRecord) -> Call:
    responses = sum(record.response_mask)
    prompts = len(record.token_ids) - responses
    if record.response_mask != [0] * prompts + [1] * responses:
        raise ValueError("a call's response_mask is not one 0 per prompt token and then one 1 per response token")
    return Call(
        policy=record.policy,
        prompt_ids=record.token_ids[:prompts],
        response_ids=record.token_ids[prompts:],
        logprobs=record.logprobs,
        versions=record.versions,
        entropies=record.entropies,
        cache_versions=record.cache_versions,
        sampling=record.sampling,
        finish_reason=record.finish_reason,
    )
