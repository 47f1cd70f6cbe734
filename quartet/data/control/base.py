"""The three control protocols, and the context that their constructors receive."""

import random
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from quartet.config import Recipe
from quartet.data.rows import FamilyStats
from quartet.types import Group, Task


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


class TaskSampler(Protocol):
    """Which tasks are attempted next."""

    def __init__(self, context: ControlContext) -> None: ...

    def pick(self, n: int) -> list[Task]:
        """The tasks of the next `n` groups. Picking without admitting gives the same tasks again."""
        ...

    def observe(self, group: Group) -> None:
        """A group has closed. Whatever is learned here is forgotten at a restart: prefer `context.statistics`."""
        ...


class RolloutAllocator(Protocol):
    """How many rollouts a group gets."""

    def __init__(self, context: ControlContext) -> None: ...

    def plan(self, task: Task) -> int: ...


class Horizon(Protocol):
    """How many turns a rollout may take."""

    def __init__(self, context: ControlContext) -> None: ...

    def max_turns(self, task: Task) -> int: ...
