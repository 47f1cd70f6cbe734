"""TRACE: rollouts for tasks, and forks of them, where different outcomes are most likely."""

from collections.abc import Sequence
from heapq import heapify, heapreplace
from typing import Annotated, Any

from pydantic import Field

from quartet.config import Recipe
from quartet.config.section import Section
from quartet.errors import ConfigError
from quartet.manager.control.base import ControlContext, RolloutAllocator
from quartet.manager.control.success_predictor import SuccessPredictor, histories
from quartet.types import Fork, Group, Root, Round, Task


class TraceAllocator(RolloutAllocator):
    """Allocate rollouts that begin with a reset (roots), and then forks of these, by the probability of different
    outcomes.

    Let v be the predicted success of a task. Its m roots have different outcomes with probability 1 - v^m - (1 - v)^m.
    The roots of all families, `mean_roots` each in the mean, are given one by one to the family that gains most; every
    group has at least two. A fork after a call, before which the predicted success is V, has the outcome r of its
    rollout with probability `same` = r V + (1 - r) (1 - V). The group's other `control.rollouts_per_group - mean_roots`
    rollouts are given one by one to the call with the largest `unmixed` * (1 - same), where `unmixed` is the product of
    `same` over the forks that the rollout has already, until no call gains `min_gain`.

    The predictor counts rollouts with the same beginning and takes no part in training. The paper trains a model. A
    group is compared with the present families, and not with a pool of candidate tasks. The credit should be one that
    reads forks: `tree_rl`, `branch_grpo` or `arpo`.
    """

    class Settings(Section):
        mean_roots: Annotated[int, Field(ge=2)] = 4
        """Mean number of roots of a group, at most `control.rollouts_per_group`."""
        max_roots: Annotated[int, Field(ge=2)] = 16
        """Maximum number of roots of a group."""
        min_gain: Annotated[float, Field(ge=0, le=1)] = 0.05
        """Smallest gain for which a rollout is forked."""
        window_rollouts: Annotated[int, Field(ge=1)] = 1024
        """Number of newest rollouts that the predictor counts, since the policy changes."""
        prior_rollouts: Annotated[float, Field(gt=0)] = 2.0
        """Pseudo-count with which the prediction of a history is shrunk towards that of its beginning."""

    settings: Settings
    may_fork = True
    source = "TRACE, arXiv 2606.11119, root and prefix allocation; solver and counting predictor are our reading"

    def __init__(self, settings: Any, context: ControlContext) -> None:
        super().__init__(settings, context)
        self._predictor = SuccessPredictor(settings.window_rollouts, settings.prior_rollouts)

    @classmethod
    def check(cls, settings: Settings, recipe: Recipe) -> None:
        if not settings.mean_roots <= min(settings.max_roots, recipe.control.rollouts_per_group):
            raise ConfigError(
                f"control.allocator.mean_roots = {settings.mean_roots} is above control.allocator.max_roots = "
                f"{settings.max_roots} or control.rollouts_per_group = {recipe.control.rollouts_per_group}",
                "lower the first",
            )

    def plan(self, task: Task) -> list[Root]:
        families = self.context.families
        chances = [self._predictor.chance((family,)) for family in families]
        roots = allocate_roots(chances, self.settings.mean_roots * len(families), self.settings.max_roots)
        return [Root()] * roots[families.index(task.family)]

    def more(self, group: Group) -> Round:
        self._predictor.observe(group)
        if not group.members or any(member.trajectory.parent for member in group.members):
            return []
        forks = self.context.recipe.control.rollouts_per_group - self.settings.mean_roots
        places: list[list[Fork]] = []
        same: list[list[float]] = []
        for member in group.members:
            success, turns = member.trajectory.success, member.trajectory.turns
            before = [self._predictor.chance(history) for history in list(histories(member.trajectory))[1:]]
            same.append([chance if success else 1 - chance for chance in before])
            places.append([Fork(rollout_id=member.rollout_id, call_index=turn.call_index) for turn in turns[:-1]])
        return [places[one][place] for one, place in allocate_forks(same, forks, self.settings.min_gain)]


def root_value(chance: float, rollouts: int) -> float:
    """Return the probability that rollouts with this chance of success have different outcomes."""
    return 1 - chance**rollouts - (1 - chance) ** rollouts


def allocate_roots(chances: Sequence[float], budget: int, most: int) -> list[int]:
    """Return the numbers of roots, from two to `most` each, that sum to `budget` if these bounds allow it."""
    counts = [2] * len(chances)

    def entry(one: int) -> tuple[float, int, int]:
        gain = root_value(chances[one], counts[one] + 1) - root_value(chances[one], counts[one])
        return (-gain if counts[one] < most else 1.0), counts[one], one

    queue = [entry(one) for one in range(len(chances))]
    heapify(queue)
    for _ in range(budget - sum(counts)):
        one = queue[0][2]
        if counts[one] >= most:
            break
        counts[one] += 1
        heapreplace(queue, entry(one))
    return counts


def allocate_forks(same: Sequence[Sequence[float]], budget: int, min_gain: float) -> list[tuple[int, int]]:
    """Return up to `budget` places (rollout, call), from the probabilities that a fork has the same outcome as its
    rollout."""
    unmixed, chosen = [1.0] * len(same), list[tuple[int, int]]()
    best = [min(range(len(of_one)), key=of_one.__getitem__) if of_one else None for of_one in same]
    for _ in range(budget):
        gains = [0.0 if place is None else unmixed[one] * (1 - same[one][place]) for one, place in enumerate(best)]
        one = max(range(len(same)), key=gains.__getitem__)
        place = best[one]
        if place is None or gains[one] < min_gain:
            break
        chosen.append((one, place))
        unmixed[one] *= same[one][place]
    return chosen
