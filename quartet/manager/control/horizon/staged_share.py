"""ScalingInter-RL for environments with several turn limits: a share of each family's limit, which grows in stages."""

from bisect import bisect_right
from typing import Annotated, Self

from pydantic import Field, model_validator

from quartet.config.section import Section
from quartet.env import turn_limit
from quartet.manager.control.base import Horizon
from quartet.types import Task


class StagedShareHorizon(Horizon):
    """Limit rollouts to a share of the suite's turn limit of the family; stages begin at given train steps.

    AgentGym-RL gives each kind of environment its own list of limits. Here one list of shares serves all families.
    """

    class Settings(Section):
        train_steps: list[Annotated[int, Field(ge=0)]] = [0]
        """Train steps at which the stages begin, ascending; the first is 0."""
        shares: list[Annotated[float, Field(gt=0, le=1)]] = [1.0]
        """Share of the family's turn limit in each stage, rounded to whole turns, at least one."""

        @model_validator(mode="after")
        def _consistent(self) -> Self:
            steps = self.train_steps
            if len(steps) != len(self.shares) or steps[:1] != [0] or steps != sorted(set(steps)):
                raise ValueError("give one of shares per entry of train_steps, which must ascend from 0")
            return self

    settings: Settings
    applies_family_limits = True
    source = "AgentGym-RL, arXiv 2509.08755, ScalingInter-RL"

    def max_turns(self, task: Task) -> int:
        recipe = self.context.recipe
        stage = bisect_right(self.settings.train_steps, self.context.train_step()) - 1
        upper_bound = turn_limit(recipe.env, task.family, recipe.rollout.max_turns)
        return max(1, round(self.settings.shares[stage] * upper_bound))
