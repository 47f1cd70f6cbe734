"""The three interfaces of control, and the context that their parts receive beside their settings."""

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec import Struct

from quartet.config import Recipe
from quartet.ledger.rows import FamilyStats
from quartet.part import Part
from quartet.types import Group, Root, Round, Task


class ControlContext(Struct, frozen=True, kw_only=True):
    """What a control part may know."""

    recipe: Recipe
    families: list[str]
    statistics: Callable[[], Mapping[str, FamilyStats]]
    """Per family, read from the ledger when called; a family that was never admitted is missing."""
    family_statistics: Callable[[str], FamilyStats]
    """The same of one family; zeros when it was never admitted."""
    train_step: Callable[[], int]
    groups_admitted: Callable[[], int]
    """The ledger's group counter. Draws are keyed by it, so a restarted run continues the same sequence."""

    def draw(self, counter: int) -> random.Random:
        """The random numbers of the group that is admitted as number `counter`."""
        return random.Random(f"{self.recipe.seed}/{counter}")

    def task(self, family: str, draw: random.Random) -> Task:
        """A task of the family, with one of the training seeds."""
        seed = draw.randrange(self.recipe.control.train_seeds_per_family)
        return Task(env=self.recipe.env.name, family=family, seed=seed)


class ControlPart(Part):
    """What the parts of control have in common: their settings, and what they may know."""

    def __init__(self, knobs: Any, context: ControlContext) -> None:
        super().__init__(knobs)
        self.context = context


class TaskSampler(ControlPart):
    """Which tasks are attempted next."""

    @abstractmethod
    def pick(self, n: int) -> list[Task]:
        """Return the tasks of the next `n` groups. Picking without admitting gives the same tasks again."""

    def observe(self, group: Group) -> None:
        """React to a closed group. A restart forgets what is kept here: prefer `context.statistics`."""


class RolloutAllocator(ControlPart):
    """How many rollouts a group gets, and in which rounds. `plan` is all that most allocators define."""

    forks: ClassVar[bool] = False
    """Whether `more` may answer with forks: a run then needs an environment that repeats an episode."""

    @abstractmethod
    def plan(self, task: Task) -> list[Root]:
        """Return the first round of a new group of this task."""

    def more(self, group: Group) -> Round:
        """Return the next round of a group whose members have ended, or nothing: then it closes.

        Forks name finished members of the group. The answer depends on the group alone: after a crash the question is
        asked again.
        """
        return ()


class Horizon(ControlPart):
    """How many turns a rollout may take."""

    @abstractmethod
    def max_turns(self, task: Task) -> int:
        """Return the turn limit of all rollouts of a new group of this task."""
