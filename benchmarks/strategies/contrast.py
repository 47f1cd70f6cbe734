"""Training until a budget of tokens is spent, on groups with different rewards or answers."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from benchmarks.learning_experiments.table import TablePolicy
from quartet.types import GroupMember


class Course(Struct):
    """Course of one run."""

    tokens: list[int] = field(default_factory=list)
    """Tokens that were generated before each point."""
    points: list[Mapping[str, float]] = field(default_factory=list)
    """Measured values by name."""
    mixed: list[bool] = field(default_factory=list)
    """One value per group: whether it was trained, since its rewards or answers differed."""

    def mean(self, name: str) -> float:
        """Return the mean of a value over the run's tokens."""
        return float(np.trapezoid([point[name] for point in self.points], self.tokens) / self.tokens[-1])

    def end(self, name: str) -> float:
        """Return a value at the end."""
        return float(self.points[-1][name])


def rewards_differ(members: Sequence[GroupMember]) -> bool:
    """Return whether a group has two different rewards."""
    return len({member.trajectory.reward for member in members}) > 1


def train_on_contrast(
    policy: TablePolicy,
    budget_tokens: int,
    group: Callable[[], list[GroupMember]],
    measure: Callable[[], Mapping[str, float]],
    has_contrast: Callable[[Sequence[GroupMember]], bool] = rewards_differ,
) -> Course:
    """Train batches of groups until `budget_tokens` were generated, and measure before the first and after each.

    Groups without contrast are not trained, and a batch without any other is no train step.
    """
    course = Course([policy.tokens], [measure()])
    while policy.tokens < budget_tokens:
        groups = [group() for _ in range(policy.recipe.train.groups_per_batch)]
        mixed = [has_contrast(members) for members in groups]
        if any(mixed):
            policy.train_now([members for members, differs in zip(groups, mixed, strict=True) if differs])
        course.tokens.append(policy.tokens)
        course.points.append(measure())
        course.mixed += mixed
    return course
