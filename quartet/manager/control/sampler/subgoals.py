"""Curriculum by sub-goals: tasks begin where an expert has few actions left, and more of them as the policy learns."""

import random
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec.structs import replace
from pydantic import Field

from quartet.config import Recipe
from quartet.config.section import Fraction, Positive
from quartet.env import make_environment, suite_families
from quartet.errors import ConfigError, nearest
from quartet.ledger.rows import FamilyStats, GroupOutcome
from quartet.ledger.statistics import NEWEST_GROUPS
from quartet.manager.control.sampler.contrast import ContrastSampler
from quartet.part import NoSettings
from quartet.types import ACTIONS_LEFT, GENERATED, Task

WHOLE_GROUPS = 4
"""Number of newest groups with whole tasks whose success rate is compared."""


class SubgoalsSampler(ContrastSampler):
    """Draw tasks like `contrast`, and begin them where an expert of the environment has few actions left.

    A sub-goal is one action of the expert, such as the filling of a field. Each family begins with one action left; the
    number rises by one when the newest groups with the present number succeed often enough. When the
    newest whole tasks do, all tasks of the family are whole. The expert plays in the reset only: none of its actions is
    trained on. Evaluations play whole tasks. The numbers follow from the ledger, so a restarted run continues them.
    With `generated_share`, some groups follow an instruction of as many sub-goals, which the environment draws from the
    elements of the page and judges itself.
    """

    class Settings(NoSettings):
        success: Fraction = 0.3
        """Success rate of the newest groups of a family from which its tasks begin with one more action left."""
        groups: Annotated[int, Field(ge=1, le=24)] = 1
        """Number of newest groups, with the present number of actions left, whose success rate is compared."""
        most: Positive = 16
        """Largest number of actions left. Tasks whose expert needs no more of them are whole."""
        whole_success: Fraction = 0.7
        """Success rate of the newest groups that played whole tasks from which all tasks of the family are whole."""
        whole_share: Fraction = 0.2
        """Share of groups that play the whole task, whatever the number of actions left."""
        generated_share: Fraction = 0.0
        """Share of groups whose instruction the environment makes from the page, of as many sub-goals as the present
        number of actions left. Only for environments that can (`miniwob`)."""
        generated_families: list[str] = []
        """Families with such groups: their pages begin with fields to fill or boxes to check."""

    settings: Settings
    source = "Gur et al. 2019, Learning to Navigate the Web: curriculum, warm start, generated instructions"
    metrics = {"data/actions_left": "1: most actions that the expert left to the policy in a half-done task"}

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        environment = make_environment(recipe.env)
        if settings.generated_families and not environment.generates_instructions:
            raise ConfigError(
                f"the environment {recipe.env.name!r} makes no instructions", "remove the sampler's generated_families"
            )
        if unknown := set(settings.generated_families) - set(suite_families(recipe.env)):
            raise ConfigError(
                f"the sampler's generated_families have {min(unknown)!r}, which the recipe does not use",
                nearest(min(unknown), suite_families(recipe.env)),
            )
        if settings.generated_share + settings.whole_share > 1:
            raise ConfigError("generated_share and whole_share of the sampler exceed 1 together", "lower one of them")
        half_done = 1 - settings.generated_share - settings.whole_share
        if settings.groups > NEWEST_GROUPS * half_done / 2:
            raise ConfigError(
                f"the sampler compares {settings.groups} groups that begin half done, but reads {NEWEST_GROUPS} of a "
                f"family, of which {half_done:.0%} do",
                "lower generated_share, whole_share or groups of the sampler",
            )
        if "longest_success" in (horizon.name for horizon in recipe.control.horizon):
            raise ConfigError(
                "the horizon longest_success would limit whole tasks to the few turns of tasks that begin half done",
                "choose another horizon beside the sampler subgoals",
            )
        for family in suite_families(recipe.env):
            if environment.expert(family, 0) is None:
                raise ConfigError(
                    f"the environment {recipe.env.name!r} has no expert for the family {family!r}",
                    "leave the family out of env.families, or choose another sampler",
                )

    def pick(self, n: int) -> list[Task]:
        statistics, first = self.context.statistics(), self.context.groups_admitted()
        return [
            self._posed(task, first + offset, self.actions_left(statistics.get(task.family)))
            for offset, task in enumerate(super().pick(n))
        ]

    def measures(self, task: Task) -> dict[str, float]:
        return {ACTIONS_LEFT: task.params[ACTIONS_LEFT]} if ACTIONS_LEFT in task.params else {}

    def actions_left(self, stats: FamilyStats | None) -> int:
        """Return the number of actions left with which the next task of a family begins."""
        outcomes = stats.outcomes if stats else []
        whole = [one for one in outcomes if not one.params]
        if _succeed(whole, WHOLE_GROUPS, self.settings.whole_success):
            return self.settings.most
        begun = [one for one in outcomes if ACTIONS_LEFT in one.params]
        reached = max((one.params[ACTIONS_LEFT] for one in begun), default=1)
        present = [one for one in begun if one.params[ACTIONS_LEFT] == reached]
        rises = _succeed(present, self.settings.groups, self.settings.success)
        return min(reached + rises, self.settings.most)

    def _posed(self, task: Task, counter: int, left: int) -> Task:
        """Return the task as the group plays it that is admitted as number `counter`."""
        drawn = random.Random(f"{self.context.recipe.seed}/{counter}/subgoals").random()
        if drawn < self.settings.whole_share:
            return task
        generated = drawn < self.settings.whole_share + self.settings.generated_share
        generated = generated and task.family in self.settings.generated_families
        return replace(task, params={**task.params, GENERATED if generated else ACTIONS_LEFT: left})


def _succeed(groups: Sequence[GroupOutcome], count: int, success_rate: float) -> bool:
    """Return whether the newest `count` of these groups have at least this success rate."""
    newest = groups[:count]
    solved, played = sum(one.successes for one in newest), sum(one.countable for one in newest)
    return len(newest) == count and solved >= success_rate * played
