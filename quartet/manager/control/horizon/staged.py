"""ScalingInter-RL: short interactions first, longer ones later in training."""

from bisect import bisect_right
from typing import Annotated, Self

from pydantic import Field, model_validator

from quartet.config.section import Positive, Section
from quartet.manager.control.base import Horizon
from quartet.types import Task


class StagedHorizon(Horizon):
    """Limit rollouts to the turns of the current stage; stages begin at given train steps (arXiv 2509.08755)."""

    class Settings(Section):
        train_steps: list[Annotated[int, Field(ge=0)]] = [0]
        """Train steps at which the stages begin, ascending; the first is 0."""
        max_turns: list[Positive] = [10]
        """Turn limit of each stage."""

        @model_validator(mode="after")
        def _consistent(self) -> Self:
            steps = self.train_steps
            if len(steps) != len(self.max_turns) or steps[:1] != [0] or steps != sorted(set(steps)):
                raise ValueError("give one max_turns per entry of train_steps, which must ascend from 0")
            return self

    settings: Settings
    source = "AgentGym-RL, arXiv 2509.08755, ScalingInter-RL"

    def max_turns(self, task: Task) -> int:
        stage = bisect_right(self.settings.train_steps, self.context.train_step()) - 1
        return self.settings.max_turns[stage]
