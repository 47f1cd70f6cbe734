"""Records written before schema 6, and their conversion: stored blobs keep their original format."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from quartet.actions.taken import taken_action
from quartet.types import (
    Call,
    FinishReason,
    Observation,
    Picture,
    Sampling,
    Status,
    Task,
    TokenColumns,
    Trajectory,
    Turn,
)


class FormerCall(Struct, frozen=True, kw_only=True):
    """A call with the token columns as direct fields."""

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


class FormerObservation(Struct, frozen=True, kw_only=True):
    """An observation with one picture."""

    goal: str
    text: str
    error: str = ""
    screenshot: bytes | None = None

    def current(self) -> Observation:
        return Observation(goal=self.goal, text=self.text, error=self.error, pictures=_pictures(self.screenshot))


class FormerTurn(Struct, frozen=True, kw_only=True):
    """A turn with one action as text, and one reward."""

    observation: FormerObservation
    call_index: int
    response: str
    action: str
    error: str = ""
    reward: float = 0.0
    points: list[tuple[float, float]] = []

    def current(self) -> Turn:
        return Turn(
            observation=self.observation.current(),
            call_index=self.call_index,
            response=self.response,
            actions=[taken_action(self.action or self.response, self.error, self.points)],
            rewards={"task": self.reward},
        )


class FormerTrajectory(Struct, frozen=True, kw_only=True):
    task: Task
    status: Status
    calls: list[FormerCall]
    turns: list[FormerTurn]
    rewards: dict[str, float]
    success: bool
    error: str = ""
    traceback: str = ""
    wall_seconds: float = 0.0

    def current(self) -> Trajectory:
        """Convert to the current format. Raises `ValueError` if the columns of a call have different lengths."""
        return Trajectory(
            task=self.task,
            status=self.status,
            calls=[call.current(str(index)) for index, call in enumerate(self.calls)],
            turns=[turn.current() for turn in self.turns],
            rewards=self.rewards,
            success=self.success,
            error=self.error,
            traceback=self.traceback,
            wall_seconds=self.wall_seconds,
        )


def with_former_pictures(trajectory: Trajectory, pictures: Sequence[bytes | None]) -> Trajectory:
    """Return a former trajectory with its pictures: at most one per turn."""
    turns = [
        replace(turn, observation=replace(turn.observation, pictures=_pictures(picture)))
        for turn, picture in zip(trajectory.turns, pictures, strict=True)
    ]
    return replace(trajectory, turns=turns)


def _pictures(screenshot: bytes | None) -> list[Picture]:
    return [Picture(data=screenshot)] if screenshot else []
