"""Passes over all families, the least solved first."""

from collections.abc import Sequence
from random import Random

from quartet.manager.control.base import TaskSampler
from quartet.types import Task


class LeastSolvedSampler(TaskSampler):
    """Draw every family once per pass: unseen families first, then in order of ascending success rate.

    This is an option of DART's released task loader. A family is drawn only once in a pass, since a family that never
    succeeds would otherwise be drawn forever. The pass follows from the number of admitted groups in the ledger, so a
    restarted run continues it.
    """

    def pick(self, n: int) -> list[Task]:
        statistics, first = self.context.statistics(), self.context.groups_admitted()
        admitted, solved = dict.fromkeys(self.context.families, 0), dict.fromkeys(self.context.families, -1.0)
        for family in statistics.keys() & admitted.keys():
            admitted[family] = statistics[family].groups_admitted
            solved[family] = statistics[family].success_rate if statistics[family].rollouts else -1.0
        tasks: list[Task] = []
        for offset in range(n):
            order = sorted(self.context.families, key=lambda name: (admitted[name], solved[name]))
            task = self._first_drawn(order, self.context.draw(first + offset))
            admitted[task.family] += 1
            tasks.append(task)
        return tasks

    def _first_drawn(self, families: Sequence[str], draw: Random) -> Task:
        """Return a task of the first family that gives one of its own, or any task if none does.

        A family in quarantine gives a task of another one, and would stay the first, since no group of it is admitted.
        """
        drawn = ((family, self.context.task(family, draw)) for family in families)
        own = (task for family, task in drawn if task.family == family)
        return next(own, None) or self.context.task(families[0], draw)
