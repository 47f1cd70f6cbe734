"""What is asked of a contender, what it answers, and the settings that all of them share. Imports nothing heavy."""

from itertools import pairwise
from pathlib import Path
from typing import Protocol

from msgspec import Struct

ROLLOUTS_PER_GROUP = 8
GROUPS_PER_STEP = 2
ROLLOUTS_PER_STEP = GROUPS_PER_STEP * ROLLOUTS_PER_GROUP
TURN_TOKENS = 32
MAX_PRESSES = 5
"""Of the workloads; one more turn says `done`."""
MAX_CONTEXT_TOKENS = 1024
LEARNING_RATE = 1e-4
ADAM_BETAS = (0.9, 0.999)
MAX_GRAD_NORM = 1.0
CLIP_LOW, CLIP_HIGH = 0.2, 0.28
TASKS = 200
"""Seeds of training, from 0."""


class Job(Struct, frozen=True, kw_only=True):
    """One training run. The same for every contender."""

    contender: str
    policy: str
    """Folder of the policy that training starts from."""
    workload: str
    """File of `benchmarks/workloads`."""
    train_steps: int
    seed: int
    threads: int
    """Of the whole contender."""


class TrainStep(Struct, frozen=True, kw_only=True):
    """One train step over `ROLLOUTS_PER_STEP` rollouts."""

    ended: float
    """Unix seconds."""
    reward: float
    """Mean over its rollouts."""
    generated_tokens: float
    """Per rollout."""
    trained_share: float
    """Of the generated tokens, those that the loss counted; tokens older than `admission.max_lag` are masked."""


class Run(Struct, frozen=True):
    """What came of a job."""

    steps: list[TrainStep]

    def rollouts_per_second(self, warm_up_steps: int) -> float:
        """Rollouts per second of the batches between the end of the warm-up and the end of the last step."""
        timed = self.steps[warm_up_steps - 1 :]
        return (len(timed) - 1) * ROLLOUTS_PER_STEP / (timed[-1].ended - timed[0].ended)

    def trained_rollouts_per_second(self, warm_up_steps: int) -> float:
        """The same with each rollout counted by the share of its tokens that was trained."""
        return self.rollouts_per_second(warm_up_steps) * self.trained_share(warm_up_steps)

    def trained_share(self, warm_up_steps: int) -> float:
        """Share of the generated tokens of those batches that the loss counted."""
        timed = self.steps[warm_up_steps:]
        generated = sum(step.generated_tokens for step in timed)
        return sum(step.trained_share * step.generated_tokens for step in timed) / generated

    def step_seconds(self, warm_up_steps: int) -> list[float]:
        return [after.ended - before.ended for before, after in pairwise(self.steps[warm_up_steps - 1 :])]

    def reward(self, last_steps: int) -> float:
        """Mean over the rollouts of the last train steps."""
        last = self.steps[-last_steps:]
        return sum(step.reward for step in last) / len(last)


class Contender(Protocol):
    """One way to train."""

    name: str

    def run(self, job: Job, folder: Path) -> Run:
        """Train in `folder`, which is empty, until `job.train_steps` steps are over."""
        ...

    def close(self) -> None: ...
