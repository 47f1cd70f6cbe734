"""Agent-R: chats that leave a wrong branch, spliced from a failed and a successful rollout of a group."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

from msgspec.structs import replace

from quartet.actions.taken import taken_action
from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.exchange.base import Writer
from quartet.exchange.chat import ChatWriter
from quartet.exchange.record import TrajectoryRecord
from quartet.exchange.stored import Selection
from quartet.types import Observation, Trajectory, Turn

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
    """Return the number of first turns with the same observations and responses in both trajectories. Guidance does not
    count, since chats leave it out."""
    count = 0
    for mine, theirs in zip(one.turns, other.turns, strict=False):
        if mine.response != theirs.response or not _same(mine.observation, theirs.observation):
            break
        count += 1
    return count


def splice(failed: Trajectory, solved: Trajectory, revision: str) -> Splice | None:
    """Return the shared turns, the first wrong turn, the revision, and the turns of the success after the shared ones.

    The revision answers the observation that followed the wrong turn. Return None if there was none, if neither
    trajectory differs from the other, or if they differ in an observation first: the success then does not continue
    from where the wrong turn was taken.
    """
    shared = num_shared(failed, solved)
    after = [turn.observation for turn in failed.turns[shared + 1 : shared + 2]]
    after += [failed.final_observation] if failed.final_observation else []
    if not after or shared >= min(len(failed.turns), len(solved.turns)):
        return None
    if not _same(failed.turns[shared].observation, solved.turns[shared].observation):
        return None
    wrong = failed.turns[: shared + 1]
    revised = Turn(observation=after[0], call_index=0, response=revision, actions=[taken_action(revision)])
    return Splice([*wrong, revised, *solved.turns[shared:]], first_learned=len(wrong))


def _same(one: Observation, other: Observation) -> bool:
    return replace(one, guidance="") == replace(other, guidance="")


class RevisionWriter(Writer):
    """Writer of one revision trajectory for each failed rollout of a group with a success. In rollouts of several
    players, each is compared with itself: a part of one policy with the same part of other rollouts.

    A failure is spliced with the success that shares most turns with it: in a tree, its nearest relative. Agent-R lets
    the policy judge where a failed rollout went wrong; here it is the first turn in which both differ, which a fork
    makes certain. The turns before the revision are read and not learned.
    """

    source = "Agent-R, arXiv 2501.11425, revision trajectories; released code (thresholds for rewards left out)"

    def __init__(self, file: BinaryIO, recipe: Recipe, limit: int | None = None) -> None:
        super().__init__(file, recipe)  # without the limit: a revision may need any other member of its group
        self._num_written, self._limit = 0, math.inf if limit is None else limit
        self._chats = ChatWriter(file, recipe)
        self._players: defaultdict[tuple[int, str, str], list[TrajectoryRecord]] = defaultdict(list)

    def write(self, record: TrajectoryRecord) -> None:
        """Keep a trajectory that counts in its group."""
        trajectory = record.trajectory
        if trajectory.status.countable:
            self._players[record.provenance.group_id, trajectory.policy, trajectory.part].append(record)

    def finish(self) -> None:
        """Write the revision trajectories of all groups, the oldest first and at most the limit."""
        for members in self._players.values():
            solved = [member for member in members if member.trajectory.success]
            for failed in (member.trajectory for member in members if not member.trajectory.success):
                if self._num_written < self._limit:
                    self._revise(failed, solved)

    @property
    def num_revisions(self) -> int:
        return self._num_written

    @classmethod
    def refuse(cls, kind: str, selection: Selection) -> None:
        super().refuse(kind, selection)
        if selection.successes_only:
            raise ConfigError(
                f"the format {kind} joins failures with successes, and --success leaves the failures out",
                "omit --success",
            )

    def _revise(self, failed: Trajectory, solved: Sequence[TrajectoryRecord]) -> None:
        """Write the failure, spliced with the nearest success that it can be spliced with, if any."""
        revision = REVISIONS[self._num_written % len(REVISIONS)]
        for record in sorted(solved, key=lambda record: _distance(failed, record.trajectory)):
            if spliced := splice(failed, record.trajectory, revision):
                self._chats.write_turns(record, spliced.turns, spliced.first_learned)
                self._num_written += 1
                return


def _distance(failed: Trajectory, solved: Trajectory) -> tuple[int, int]:
    """Return the order of successes: those that share most turns with a failure first; of several, the shortest."""
    return -num_shared(failed, solved), len(solved.turns)
