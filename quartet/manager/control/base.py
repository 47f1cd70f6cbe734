"""Interfaces of the three parts of control (task sampler, allocator, horizon), and the context that they receive."""

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec import Struct

from quartet.config import Recipe
from quartet.ledger.rows import FamilyStats
from quartet.part import Part
from quartet.types import Group, Root, Round, Task, Trajectory

MAX_DRAWS = 100
"""Maximum number of tasks that are drawn in place of tasks in quarantine."""


class ControlContext(Struct, frozen=True, kw_only=True):
    """Information available to a control part."""

    recipe: Recipe
    families: list[str]
    train_tasks: Mapping[str, int] = {}
    """Number of training tasks of the families with a fixed number; the others have
    `control.train_seeds_per_family`."""
    statistics: Callable[[], Mapping[str, FamilyStats]]
    """Function that reads the statistics of all families from the ledger; families that were never admitted are
    missing."""
    family_statistics: Callable[[str], FamilyStats]
    """Function that reads the statistics of one family; zeros if the family was never admitted."""
    train_step: Callable[[], int]
    solved_elsewhere: Callable[[Task, int], list[Trajectory]] = lambda _task, _count: []
    """Function that returns the newest successes on other tasks of the task's family, at most one per task and at most
    the given number in all."""
    quarantined: Callable[[Task], bool] = lambda _: False
    """Function that reads whether a task is in quarantine because its environment keeps failing."""
    groups_admitted: Callable[[], int]
    """Function that reads the number of groups admitted so far. Random draws are seeded by this number, so that a
    restarted run continues the same sequence."""

    def draw(self, counter: int) -> random.Random:
        """Return the random generator for the group that is admitted as number `counter`, from 0."""
        return random.Random(f"{self.recipe.seed}/{counter}")

    def task(self, family: str, draw: random.Random) -> Task:
        """Return a task of the family, with one of the training seeds; a task of any family if that one is in
        quarantine.

        If `MAX_DRAWS` tasks are all in quarantine, return the last one: then the run fails with its error.
        """
        task = self._drawn(family, draw)
        for _ in range(MAX_DRAWS):
            if not self.quarantined(task):
                break
            task = self._drawn(draw.choice(self.families), draw)
        return task

    def _drawn(self, family: str, draw: random.Random) -> Task:
        seed = draw.randrange(self.train_tasks.get(family, self.recipe.control.train_seeds_per_family))
        return Task(env=self.recipe.env.name, family=family, seed=seed)


class ControlPart(Part):
    """Base class of the parts of control, with their settings and context."""

    def __init__(self, settings: Any, context: ControlContext) -> None:
        super().__init__(settings)
        self.context = context


class TaskSampler(ControlPart):
    """Interface of task samplers, which choose the tasks of new groups."""

    @abstractmethod
    def pick(self, n: int) -> list[Task]:
        """Return the tasks of the next `n` groups. Fewer of them may be admitted, so the call must not change the
        sampler's state; the random draws follow from `context.groups_admitted()`."""

    def observe(self, group: Group) -> None:
        """React to a closed group. State kept in the sampler is lost in a restart: prefer `context.statistics`."""

    def measures(self, task: Task) -> dict[str, float]:
        """Return metrics of a closed group of this task, which the manager records in the area `data`."""
        return {}


class RolloutAllocator(ControlPart):
    """Interface of allocators, which choose the number of rollouts of a group, in rounds. A round ends when all its
    rollouts have ended, or when enough of them are countable (the straggler rule's quorum). A group closes without a
    further round if all its rollouts have failed, or at least eight and three times as many as are countable: a round
    that fails would otherwise be repeated without end, since `more` sees countable members only.

    Most allocators define only `plan`, for groups with a single round.
    """

    may_fork: ClassVar[bool] = False
    """True if `more` may return forks; a run then needs a deterministic environment."""
    may_guide: ClassVar[bool] = False
    """True if `more` may return guided rollouts; no prompt of a run with `rollout.guidance` may then have pictures."""

    @abstractmethod
    def plan(self, task: Task) -> list[Root]:
        """Return the first round of a new group of this task."""

    def more(self, group: Group) -> Round:
        """Return the rollouts to add to a group whose round has ended; an empty result closes the group.

        Forks refer to finished members of the group. The call is repeated after a crash, until a result is stored, so
        it must not change the allocator's state.
        """
        return ()


class Horizon(ControlPart):
    """Interface of horizons, which choose the turn limit of rollouts."""

    applies_family_limits: ClassVar[bool] = False
    """True if no limit exceeds the environment's limit of the task's family (`Environment.max_turns`), which
    evaluations apply. A run whose horizons do not apply a limit below `rollout.max_turns` prints a note."""

    @abstractmethod
    def max_turns(self, task: Task) -> int:
        """Return the turn limit of all rollouts of a new group of this task."""
