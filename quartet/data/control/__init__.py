"""Control: which task, how many rollouts, how many turns. Each choice is a one-class file behind a name."""

from quartet.data.control.base import Horizon, RolloutAllocator, TaskSampler
from quartet.data.control.contrast import ContrastSampler
from quartet.data.control.fixed import FixedAllocator, FixedHorizon, SuiteHorizon
from quartet.data.control.uniform import UniformSampler

SAMPLERS: dict[str, type[TaskSampler]] = {"uniform": UniformSampler, "contrast": ContrastSampler}
ALLOCATORS: dict[str, type[RolloutAllocator]] = {"fixed": FixedAllocator}
HORIZONS: dict[str, type[Horizon]] = {"fixed": FixedHorizon, "suite": SuiteHorizon}
