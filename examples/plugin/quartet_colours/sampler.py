"""Sampler that chooses the families in turn. It keeps no state: the ledger counts the groups."""

from quartet.manager.control.base import TaskSampler
from quartet.types import Task


class InTurn(TaskSampler):
    """Choose each family equally often."""

    def pick(self, n: int) -> list[Task]:
        first, families = self.context.groups_admitted(), self.context.families
        numbers = range(first, first + n)
        return [self.context.task(families[i % len(families)], self.context.draw(i)) for i in numbers]
