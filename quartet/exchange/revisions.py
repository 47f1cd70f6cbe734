"""Agent-R: chats that leave a wrong branch, spliced from a failed and a successful rollout of a group."""

from collections import defaultdict
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

from quartet.actions.taken import taken_action
from quartet.config import Recipe
from quartet.exchange.chat import ChatWriter
from quartet.exchange.record import TrajectoryRecord
from quartet.types import Trajectory, Turn

REVISIONS = (
    "My last action was wrong. I go back and try another one.",
    "This does not lead to the goal. I return to where I was and choose differently.",
    "I made a mistake in the last step. I correct it.",
    "That was not what the task asks for. I take it back and continue from before.",
)
"""Texts of the revision, chosen in turn."""


class Splice(NamedTuple):
    """Turns of a revision trajectory."""

    turns: list[Turn]
    first_learned: int
    """Index of the revision; the turns before it are read and not learned."""


def num_shared(one: Trajectory, other: Trajectory) -> int:
    """Return the number of first turns with the same observations and responses in both trajectories."""
    count = 0
    for mine, theirs in zip(one.turns, other.turns, strict=False):
        if (mine.observation, mine.response) != (theirs.observation, theirs.response):
            break
        count += 1
    return count


def splice(failed: Trajectory, solved: Trajectory, revision: str) -> Splice | None:
    """Return the shared turns, the first wrong turn, the revision, and the turns of the success after the shared ones.

    The revision answers the observation that followed the wrong turn. Return None if there was none, or if neither
    trajectory differs from the other.
    """
    shared = num_shared(failed, solved)
    after = [turn.observation for turn in failed.turns[shared + 1 : shared + 2]]
    after += [failed.final_observation] if failed.final_observation else []
    if not after or shared >= min(len(failed.turns), len(solved.turns)):
        return None
    wrong = failed.turns[: shared + 1]
    revised = Turn(observation=after[0], call_index=0, response=revision, actions=[taken_action(revision)])
    return Splice([*wrong, revised, *solved.turns[shared:]], first_learned=len(wrong))


class RevisionWriter:
    """Writer of one revision trajectory for each failed rollout of a group with a success.

    A failure is spliced with the success that shares most turns with it: in a tree, its nearest relative. Agent-R lets
    the policy judge where a failed rollout went wrong; here it is the first turn in which both differ, which a fork
    makes certain. The turns before the revision are read and not learned.
    """

    source = "Agent-R, arXiv 2501.11425, revision trajectories; released code (thresholds for rewards left out)"

    def __init__(self, file: BinaryIO, recipe: Recipe) -> None:
        self._chats = ChatWriter(file, recipe)
        self._groups: defaultdict[int, list[TrajectoryRecord]] = defaultdict(list)

    def write(self, record: TrajectoryRecord) -> None:
        """Keep a trajectory that counts in its group."""
        if record.trajectory.status.countable:
            self._groups[record.provenance.group_id].append(record)

    def finish(self) -> None:
        """Write the revision trajectories of all groups."""
        written = 0
        for members in self._groups.values():
            solved = [member for member in members if member.trajectory.success]
            for failed in (member.trajectory for member in members if not member.trajectory.success):
                record = _nearest(failed, solved)
                spliced = splice(failed, record.trajectory, REVISIONS[written % len(REVISIONS)]) if record else None
                if record and spliced:
                    self._chats.write_turns(record, spliced.turns, spliced.first_learned)
                    written += 1


def _nearest(failed: Trajectory, solved: Sequence[TrajectoryRecord]) -> TrajectoryRecord | None:
    """Return the success that shares most turns with a failure; of several, the shortest."""

    def closeness(record: TrajectoryRecord) -> tuple[int, int]:
        return num_shared(failed, record.trajectory), -len(record.trajectory.turns)

    return max(solved, key=closeness, default=None)
