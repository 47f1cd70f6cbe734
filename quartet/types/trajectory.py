"""The record of what one policy did in a rollout: its turns, its calls, and how it ended."""

from enum import StrEnum

from msgspec import Struct

from quartet.types.action import TakenAction
from quartet.types.call import MAIN, Call
from quartet.types.fork import Fork
from quartet.types.task import Observation, Task


class Turn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One observation, one response, and the actions that it held."""

    observation: Observation
    call_index: int
    """Index of the call in `Trajectory.calls` that produced this turn's response."""
    response: str
    """The response as text, for people; training reads the call."""
    actions: list[TakenAction] = []
    """In the order of the response, each with its outcome; a response without a valid action has one `parse_error`."""
    rewards: dict[str, float] = {}
    """Named reward parts of this turn."""

    @property
    def reward(self) -> float:
        return sum(self.rewards.values())

    @property
    def error(self) -> str:
        """Why not all of its actions were done; empty when they were."""
        return "; ".join(action.error for action in self.actions if action.error)

    @property
    def points(self) -> list[tuple[float, float]]:
        """Where on the screen its actions pointed, in pixels."""
        return [point for action in self.actions for point in action.points]


class Status(StrEnum):
    """How a rollout ended. A malformed action is a turn with an error observation, not an error status."""

    COMPLETED = "completed"
    TRUNCATED_TURNS = "truncated_turns"
    TRUNCATED_TOKENS = "truncated_tokens"
    TRUNCATED_TIME = "truncated_time"
    """Says more about the machine than about the policy: neither in the baseline nor trained."""
    ERROR_ENV = "error_env"
    ERROR_ENGINE = "error_engine"
    ERROR_REWARD = "error_reward"
    ERROR_AGENT = "error_agent"
    """A bug in our own loop: no retry, an alarm."""
    DIVERGED = "diverged"
    """A child that repeated its parent's actions and was shown something else: neither in the baseline nor trained."""
    CANCELLED = "cancelled"
    DAMAGED = "damaged"
    """A blob was lost or failed its checksum."""

    @property
    def retried(self) -> bool:
        """An infrastructure failure: worth another attempt on a fresh environment, never a reward of 0."""
        return self in (Status.ERROR_ENV, Status.ERROR_ENGINE, Status.ERROR_REWARD)

    @property
    def countable(self) -> bool:
        """Counts in the group's baseline and is trained."""
        return self in (Status.COMPLETED, Status.TRUNCATED_TURNS, Status.TRUNCATED_TOKENS)


class Trajectory(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="format", tag=2):
    """The record of what one policy did in one role of a rollout; most rollouts have one trajectory.

    A record that was written before schema 6 has no `format`: `quartet.ledger.former_records`.
    """

    task: Task
    status: Status
    calls: list[Call]
    turns: list[Turn]
    final_observation: Observation | None = None
    """What the environment showed after the last turn, or what was shown and not answered any more; None where nothing
    was seen."""
    rewards: dict[str, float]
    """Named reward parts; `reward` is their sum."""
    success: bool
    error: str = ""
    """Why it did not come to its end, in one line."""
    traceback: str = ""
    """Of the exception, where code of the environment or of the agent loop raised one."""
    wall_seconds: float = 0.0
    policy: str = MAIN
    """The policy that sampled its own tokens; a trajectory belongs to one."""
    role: str = "agent"
    """What that policy was in the rollout, for example `solver` or `judge`."""
    part: str = ""
    """Names the trajectory within its rollout; empty where the rollout has no other."""
    parent: Fork | None = None
    """Where it was forked from another rollout; None where it began at the start."""

    @property
    def reward(self) -> float:
        return sum(self.rewards.values())

    @property
    def has_pictures(self) -> bool:
        """Whether an observation holds or names a picture."""
        seen = [turn.observation for turn in self.turns]
        return any(one.pictures for one in seen) or bool(self.final_observation and self.final_observation.pictures)

    @property
    def versions(self) -> list[int]:
        """All versions of its policy that sampled one of its own tokens, ascending; borrowed ones are the parent's."""
        mine = (call for call in self.calls if call.policy == self.policy)
        return sorted({version for call in mine for version in call.own_response.versions})

    @property
    def num_valid_actions(self) -> int:
        """Turns whose action was understood and done."""
        return sum(not turn.error for turn in self.turns)

    @property
    def oldest_version(self) -> int | None:
        """Lowest policy version among all sampled tokens; None when nothing was sampled."""
        return min(self.versions, default=None)

    @property
    def newest_version(self) -> int | None:
        """Highest policy version among all sampled tokens; None when nothing was sampled."""
        return max(self.versions, default=None)

    @property
    def num_response_tokens(self) -> int:
        return sum(len(call.own_response) for call in self.calls)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(call.prompt_ids) for call in self.calls if call.own_response or not call.borrowed)
