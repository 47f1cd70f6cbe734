"""Records as they were written before schema 6, and what they are today: a blob keeps the form it was written in."""

from msgspec import Struct

from quartet.types import Call, FinishReason, Sampling, Status, Task, TokenColumns, Trajectory, Turn


class FormerCall(Struct, frozen=True, kw_only=True):
    """A call with its columns beside its other fields."""

    policy: str = "main"
    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float]
    versions: list[int]
    entropies: list[float] = []
    cache_versions: list[int] = []
    sampling: Sampling
    finish_reason: FinishReason

    def current(self, key: str) -> Call:
        return Call(
            key=key,
            policy=self.policy,
            prompt_ids=self.prompt_ids,
            response=TokenColumns(
                token_ids=self.response_ids,
                logprobs=self.logprobs,
                versions=self.versions,
                entropies=self.entropies,
                cache_versions=self.cache_versions,
            ),
            sampling=self.sampling,
            finish_reason=self.finish_reason,
        )


class FormerTrajectory(Struct, frozen=True, kw_only=True):
    task: Task
    status: Status
    calls: list[FormerCall]
    turns: list[Turn]
    rewards: dict[str, float]
    success: bool
    error: str = ""
    traceback: str = ""
    wall_seconds: float = 0.0

    def current(self) -> Trajectory:
        """Raises `ValueError` when columns of a call do not fit each other."""
        return Trajectory(
            task=self.task,
            status=self.status,
            calls=[call.current(str(index)) for index, call in enumerate(self.calls)],
            turns=self.turns,
            rewards=self.rewards,
            success=self.success,
            error=self.error,
            traceback=self.traceback,
            wall_seconds=self.wall_seconds,
        )
