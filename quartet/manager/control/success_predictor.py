"""Predicted success of a history: counts of earlier rollouts that had the same beginning."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence

from quartet.types import Group, Trajectory, Turn

History = tuple[str, ...]
"""Family, then alternately observations and responses. It ends with an observation."""


class SuccessPredictor:
    """Share of successes among the newest rollouts with the same history, shrunk towards that of its beginnings.

    The estimate of the empty history is the prior 1/2. Each longer beginning has (successes + `strength` * estimate of
    the shorter one) / (rollouts + `strength`). So a history that was never seen has the estimate of its longest known
    beginning. A rollout is counted once, however often it is observed; a restart begins without counts.
    """

    def __init__(self, window: int, strength: float) -> None:
        self._window, self._strength = window, strength
        self._counted: OrderedDict[int, tuple[list[History], bool]] = OrderedDict()  # by rollout id
        self._counts: defaultdict[History, list[int]] = defaultdict(lambda: [0, 0])  # rollouts, successes

    def observe(self, group: Group) -> None:
        """Count the rollouts of a group that were not counted before, and forget the oldest ones."""
        for member in group.members:
            if member.rollout_id not in self._counted:
                beginnings = list(histories(member.trajectory))
                self._counted[member.rollout_id] = beginnings, member.trajectory.success
                self._add(beginnings, 1, int(member.trajectory.success))
        while len(self._counted) > self._window:
            _, (beginnings, success) = self._counted.popitem(last=False)
            self._add(beginnings, -1, -int(success))

    def chance(self, history: History) -> float:
        """Return the predicted probability of success after a history."""
        found = 0.5
        for length in range(1, len(history) + 1, 2):
            rollouts, successes = self._counts.get(history[:length], (0, 0))
            found = (successes + self._strength * found) / (rollouts + self._strength)
        return found

    def _add(self, beginnings: Sequence[History], rollouts: int, successes: int) -> None:
        for history in beginnings:
            counts = self._counts[history]
            counts[0] += rollouts
            counts[1] += successes
            if not counts[0]:
                del self._counts[history]


def histories(trajectory: Trajectory) -> Iterator[History]:
    """Yield the history of the family alone, and those before each call but the first."""
    yield (history := (trajectory.task.family,))
    for turn, following in zip(trajectory.turns, trajectory.turns[1:], strict=False):
        yield (history := (*history, _act(turn), following.observation.text))


def _act(turn: Turn) -> str:
    return " ".join(action.canonical for action in turn.actions) or turn.response
