"""ScalingInter-RL: short interactions first, longer ones as training goes on."""

from bisect import bisect_right

from quartet.data.control.base import ControlContext, Horizon
from quartet.types import Task


class StagedHorizon(Horizon):
    """The limit of the present stage; stages begin at train steps (AgentGym-RL, arXiv 2509.08755)."""

    def __init__(self, context: ControlContext) -> None:
        self._stages, self._train_step = context.recipe.control.staged, context.train_step

    def max_turns(self, task: Task) -> int:
        stage = bisect_right(self._stages.train_steps, self._train_step()) - 1
        return self._stages.max_turns[stage]
