"""Control: which task, how many rollouts, how many turns. Each choice is a one-class file behind a name."""

from quartet.data.control.base import ControlContext, Horizon, RolloutAllocator, TaskSampler
from quartet.data.control.contrast import ContrastSampler
from quartet.data.control.dynamic_rollouts import DynamicAllocator
from quartet.data.control.fixed import FixedAllocator, FixedHorizon, SuiteHorizon
from quartet.data.control.least_solved import LeastSolvedSampler
from quartet.data.control.longest_success import LongestSuccessHorizon
from quartet.data.control.staged import StagedHorizon
from quartet.data.control.uniform import UniformSampler
from quartet.data.control.vade import VadeSampler
from quartet.registry import lookup
from quartet.types import Task

SAMPLERS: dict[str, type[TaskSampler]] = {
    "uniform": UniformSampler,
    "contrast": ContrastSampler,
    "least_solved": LeastSolvedSampler,
    "vade": VadeSampler,
}
ALLOCATORS: dict[str, type[RolloutAllocator]] = {"fixed": FixedAllocator, "dynamic": DynamicAllocator}
HORIZONS: dict[str, type[Horizon]] = {
    "fixed": FixedHorizon,
    "suite": SuiteHorizon,
    "longest_success": LongestSuccessHorizon,
    "staged": StagedHorizon,
}


class TightestHorizon(Horizon):
    """The lowest limit of all horizons that the recipe names. Raises `ConfigError` for an unknown name."""

    def __init__(self, context: ControlContext) -> None:
        self._horizons = [lookup("horizon", name, HORIZONS)(context) for name in context.recipe.control.horizon]

    def max_turns(self, task: Task) -> int:
        return min(horizon.max_turns(task) for horizon in self._horizons)
