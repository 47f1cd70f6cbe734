"""Interface of the contenders, and the settings that all of them share. Imports nothing heavy."""

from itertools import pairwise
from pathlib import Path
from typing import Protocol

from msgspec import Struct

ROLLOUTS_PER_GROUP = 8
GROUPS_PER_STEP = 2
ROLLOUTS_PER_STEP = GROUPS_PER_STEP * ROLLOUTS_PER_GROUP
TURN_TOKENS = 32
MAX_PRESSES = 5
"""Maximum number of presses in an episode of the workloads; one further turn answers `done`."""
MAX_CONTEXT_TOKENS = 1024
LEARNING_RATE = 1e-4
ADAM_BETAS = (0.9, 0.999)
MAX_GRAD_NORM = 1.0
CLIP_LOW, CLIP_HIGH = 0.2, 0.28
TASKS = 200
"""Number of training seeds, from 0."""


class Job(Struct, frozen=True, kw_only=True):
    """Description of a training run, the same for every contender."""

    contender: str
    policy: str
    """Folder of the policy that training starts from."""
    workload: str
    """File of `benchmarks/workloads`."""
    train_steps: int
    seed: int
    threads: int
    """Number of threads of the whole contender."""


class TrainStep(Struct, frozen=True, kw_only=True):
    """One train step over `ROLLOUTS_PER_STEP` rollouts."""

    ended: float
    """End of the train step in Unix seconds."""
    reward: float
    """Mean reward of the step's rollouts."""
    generated_tokens: float
    """Mean number of generated tokens per rollout."""
    trained_share: float
    """Share of the generated tokens that the loss counted; tokens with a lag above `admission.max_lag` are masked."""


class Run(Struct, frozen=True):
    """Result of a job."""

    steps: list[TrainStep]

    def rollouts_per_second(self, warm_up_steps: int) -> float:
        """Return the rollouts per second of the batches between the end of the warm-up and the end of the last step."""
        timed = self.steps[warm_up_steps - 1 :]
        return (len(timed) - 1) * ROLLOUTS_PER_STEP / (timed[-1].ended - timed[0].ended)

    def trained_rollouts_per_second(self, warm_up_steps: int) -> float:
        """Return `rollouts_per_second`, with each rollout counted by the share of its tokens that was trained."""
        return self.rollouts_per_second(warm_up_steps) * self.trained_share(warm_up_steps)

    def trained_share(self, warm_up_steps: int) -> float:
        """Return the share of the generated tokens, after the warm-up, that the loss counted."""
        timed = self.steps[warm_up_steps:]
        generated = sum(step.generated_tokens for step in timed)
        return sum(step.trained_share * step.generated_tokens for step in timed) / generated

    def step_seconds(self, warm_up_steps: int) -> list[float]:
        return [after.ended - before.ended for before, after in pairwise(self.steps[warm_up_steps - 1 :])]

    def reward(self, last_steps: int) -> float:
        """Return the mean reward of the rollouts of the last train steps."""
        last = self.steps[-last_steps:]
        return sum(step.reward for step in last) / len(last)


class Contender(Protocol):
    """One method of training."""

    name: str

    def run(self, job: Job, folder: Path) -> Run:
        """Train in the empty folder `folder` for `job.train_steps` steps."""
        ...

    def close(self) -> None: ...
