"""Every family equally often."""

from quartet.data.control.base import ControlContext, TaskSampler
from quartet.types import Group, Task


class UniformSampler(TaskSampler):
    """Draws a family, then a seed, both uniformly."""

    def __init__(self, context: ControlContext) -> None:
        self._context = context

    def pick(self, n: int) -> list[Task]:
        first = self._context.groups_admitted()
        draws = [self._context.draw(first + offset) for offset in range(n)]
        return [self._context.task(draw.choice(self._context.families), draw) for draw in draws]

    def observe(self, group: Group) -> None:
        """Nothing to learn."""
