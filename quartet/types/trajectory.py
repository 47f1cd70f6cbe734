"""The record of one policy in a rollout: its turns, its calls, and its final status."""

from enum import StrEnum

from msgspec import Struct

from quartet.types.action import TakenAction
from quartet.types.call import MAIN, Call
from quartet.types.fork import Fork
from quartet.types.task import Observation, Task


class Turn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One observation, one response, and the actions in the response."""

    observation: Observation
    call_index: int
    """Index of the call in `Trajectory.calls` that produced this turn's response."""
    response: str
    """The response as text, for display; training reads the call."""
    actions: list[TakenAction] = []
    """Actions in response order, each with its outcome; a response without a valid action has one `parse_error`."""
    rewards: dict[str, float] = {}
    """Named reward parts of this turn."""

    @property
    def reward(self) -> float:
        return sum(self.rewards.values())

    @property
    def error(self) -> str:
        """Errors of the turn's actions; empty if all were done."""
        return "; ".join(action.error for action in self.actions if action.error)

    @property
    def points(self) -> list[tuple[float, float]]:
        """Screen positions of the turn's actions, in pixels."""
        return [point for action in self.actions for point in action.points]


class Status(StrEnum):
    """Final status of a rollout. A malformed action is a turn with an error observation, not an error status."""

    COMPLETED = "completed"
    TRUNCATED_TURNS = "truncated_turns"
    TRUNCATED_TOKENS = "truncated_tokens"
    TRUNCATED_TIME = "truncated_time"
    """The time limit was reached. This depends more on the machine than on the policy, so the rollout is not in the
    baseline and is not trained."""
    ERROR_ENV = "error_env"
    ERROR_ENGINE = "error_engine"
    ERROR_REWARD = "error_reward"
    ERROR_AGENT = "error_agent"
    """The agent loop has a bug. The rollout is not retried, and an alarm is shown."""
    DIVERGED = "diverged"
    """A child received other observations than its parent, after the same actions or in the restored state. It is not
    in the baseline and is not trained."""
    CANCELLED = "cancelled"
    DAMAGED = "damaged"
    """A blob was lost or failed its checksum."""

    @property
    def retried(self) -> bool:
        """True for an infrastructure failure: the rollout is retried in a fresh environment, and the failure never
        counts as a reward of 0."""
        return self in (Status.ERROR_ENV, Status.ERROR_ENGINE, Status.ERROR_REWARD)

    @property
    def countable(self) -> bool:
        """True if the rollout counts in the group's baseline and is trained."""
        return self in (Status.COMPLETED, Status.TRUNCATED_TURNS, Status.TRUNCATED_TOKENS)


class Trajectory(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="format", tag=2):
    """The record of one policy in one role of a rollout; most rollouts have one trajectory.

    Records written before schema 6 have no `format` and are read by `quartet.ledger.former_records`.
    """

    task: Task
    status: Status
    calls: list[Call]
    turns: list[Turn]
    final_observation: Observation | None = None
    """The last observation, to which the policy did not respond; None if there was no observation."""
    rewards: dict[str, float]
    """Named reward parts; `reward` is their sum."""
    success: bool
    error: str = ""
    """Error that ended the rollout early, in one line."""
    traceback: str = ""
    """Traceback of the exception that the environment or the agent loop raised, if any."""
    wall_seconds: float = 0.0
    policy: str = MAIN
    """The one policy that sampled the trajectory's own tokens."""
    role: str = "agent"
    """Role of that policy in the rollout, for example `solver` or `judge`."""
    part: str = ""
    """Name of the trajectory within its rollout; empty if the rollout has no other trajectory."""
    parent: Fork | None = None
    """Fork point in the parent rollout; None if the rollout began with a reset."""

    @property
    def reward(self) -> float:
        return sum(self.rewards.values())

    @property
    def has_pictures(self) -> bool:
        """True if an observation holds or refers to a picture."""
        seen = [turn.observation for turn in self.turns]
        return any(one.pictures for one in seen) or bool(self.final_observation and self.final_observation.pictures)

    @property
    def versions(self) -> list[int]:
        """Policy versions that sampled the trajectory's own tokens, ascending. Tokens that belong to a parent do not
        count."""
        mine = (call for call in self.calls if call.policy == self.policy)
        return sorted(set().union(*(call.own_response.versions for call in mine)))

    @property
    def num_valid_actions(self) -> int:
        """Number of turns without an error."""
        return sum(not turn.error for turn in self.turns)

    @property
    def oldest_version(self) -> int | None:
        """Lowest policy version among all sampled tokens; None if nothing was sampled."""
        return min(self.versions, default=None)

    @property
    def newest_version(self) -> int | None:
        """Highest policy version among all sampled tokens; None if nothing was sampled."""
        return max(self.versions, default=None)

    @property
    def num_response_tokens(self) -> int:
        return sum(len(call.own_response) for call in self.calls)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(call.prompt_ids) for call in self.calls if call.own_response or not call.borrowed)
