"""Quarantine of tasks and families that keep failing: they get no further groups, so that they do not take sessions
from tasks that work."""

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.types import Group, Task


def family_subject(task: Task) -> str:
    """Return the name under which the task's family is quarantined."""
    return f"{task.env}/{task.family}"


class TaskQuarantine:
    """Observer of closed groups. Its state is in the ledger."""

    def __init__(self, recipe: Recipe, ledger: Ledger) -> None:
        self._control, self._tasks = recipe.control, ledger.failing_tasks
        self._max_attempts = recipe.rollout.max_attempts

    def observe(self, group: Group) -> None:
        """Count a closed group of which nothing could be used because the environment failed."""
        subjects = {
            group.task.key: self._control.failed_groups_per_task,
            family_subject(group.task): self._control.failed_groups_per_family,
        }
        if group.members:
            self._tasks.succeeded([*subjects])
        else:
            self._tasks.observe(group.group_id, group.task, subjects, self._max_attempts)

    def holds(self, task: Task) -> bool:
        """Return whether the task or its family is in quarantine."""
        quarantined = self._tasks.quarantined()
        return task.key in quarantined or family_subject(task) in quarantined
