"""Control: which task, how many rollouts, how many turns. Each choice is a one-class file behind a name."""

from quartet.data.control.base import Horizon, RolloutAllocator, TaskSampler
from quartet.data.control.contrast import ContrastSampler
from quartet.data.control.dynamic_rollouts import DynamicAllocator
from quartet.data.control.fixed import FixedAllocator, FixedHorizon, SuiteHorizon
from quartet.data.control.least_solved import LeastSolvedSampler
from quartet.data.control.longest_success import LongestSuccessHorizon
from quartet.data.control.staged import StagedHorizon
from quartet.data.control.uniform import UniformSampler
from quartet.data.control.vade import VadeSampler

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
