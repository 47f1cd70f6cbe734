"""Scenario of a simulation: devices, workloads, and the settings of the recipe that the real manager follows."""

import math
from random import Random
from typing import Any

from msgspec import Struct

from quartet.forecast.gpus import GpuKind
from quartet.forecast.model_size import ModelSize
from quartet.forecast.trainer_cost import Trainer
from quartet.forecast.workload import Workload
from quartet.types import MAIN, Task


class Spread(Struct, frozen=True, kw_only=True):
    """Coefficients of variation of log-normal draws around the means of a workload."""

    turns: float = 0.0
    response: float = 0.0
    step: float = 0.0
    reset: float = 0.0


class Kind(Struct, frozen=True, kw_only=True):
    """One kind of task: the simulator draws its rollouts around the means of `workload`."""

    workload: Workload
    spread: Spread = Spread()
    max_turns: int
    processor_seconds: float = 0.0
    """Part of a step that needs a processor of the environment hosts."""
    reward_seconds: float = 0.0
    """Time of a reward server after the last turn."""
    max_response_tokens: int | None = None
    """Limit of a response; None for no limit."""
    slow_share: float = 0.0
    """Share of attempts whose environment is slow in every step."""
    slow_factor: float = 1.0
    """Duration of a step of a slow environment, in units of a normal one's."""
    hang_share: float = 0.0
    """Share of attempts whose environment hangs in its first step and then fails."""
    hang_seconds: float = 0.0
    """Time until the failure of an environment that hangs is noticed."""
    success: float = 0.5
    """Probability of success in a task that the policy can solve; it decides what the filters drop."""
    impossible_share: float = 0.0
    """Share of tasks that the policy never solves."""

    def succeeds(self, task: Task, draw: Random) -> bool:
        """Draw the outcome of one rollout; whether a task is impossible follows from the task."""
        return Random(task.key).random() >= self.impossible_share and draw.random() < self.success


class Away(Struct, frozen=True, kw_only=True):
    """Schedule of a service that leaves and joins again: away at the end of each period."""

    period_seconds: float
    away_seconds: float


class Engines(Struct, frozen=True, kw_only=True):
    """Equal engines."""

    count: int
    gpu: GpuKind
    gpus_per_engine: int
    latency_seconds: float = 0.0
    """Time of a request's way to the engine and back."""
    load_seconds: float | None = None
    """Time to load new weights; None for the scenario's."""
    away: Away | None = None
    """Times at which these engines and their sessions have left; None if they stay."""
    sessions: int = 0
    """Sessions that leave with these engines."""


class Scenario(Struct, frozen=True, kw_only=True):
    """One system with its workload."""

    kinds: dict[str, Kind]
    """Kinds of tasks by family; control draws families uniformly."""
    model: ModelSize
    engines: list[Engines]
    trainer: Trainer
    trainer_gpus: int
    sessions: int
    recipe: dict[str, Any]
    """Settings of the recipe by section."""
    policies: tuple[str, ...] = (MAIN,)
    """Policies that take turns in every rollout, each trained by a trainer with `trainer_gpus`."""
    frozen: tuple[str, ...] = ()
    """Those of the policies that are not trained."""
    affinity: bool = False
    """Route by hardware affinity instead of the least requests."""
    environment_processors: int | None = None
    """Processors for all environments; None for enough."""
    reward_servers: int | None = None
    """Servers that compute rewards; None for as many as there are rollouts."""
    load_seconds: float = 10.0
    tick_seconds: float = 2.0
    """Time between a notification and the data manager's tick that follows it; several notifications share a tick."""
    loads_at_once: int | None = 1
    """Engines that load weights at the same time; None for all."""
    trained_lag: int | None = None
    """Lag bound when a batch is claimed; None for `admission.max_lag`."""
    last_call_only: bool = False
    """Record the version of a rollout's last call only, so that a rollout is as old as its last call."""
    max_trained_turns: int | None = None
    """Number of turns at which the trainer cuts a batch; None to train all."""
    seed: int = 0


def drawn(mean: float, variation: float, draw: Random) -> float:
    """Return a log-normal draw with this mean and coefficient of variation."""
    if not variation or not mean:
        return mean
    variance = math.log(1 + variation**2)
    return mean * math.exp(draw.gauss(-variance / 2, math.sqrt(variance)))
