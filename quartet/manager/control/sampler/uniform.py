"""Uniform sampling of families."""

from quartet.manager.control.base import TaskSampler
from quartet.types import Task


class UniformSampler(TaskSampler):
    """Draw a family, then a seed, both uniformly."""

    def pick(self, n: int) -> list[Task]:
        first = self.context.groups_admitted()
        draws = [self.context.draw(first + offset) for offset in range(n)]
        return [self.context.task(draw.choice(self.context.families), draw) for draw in draws]
