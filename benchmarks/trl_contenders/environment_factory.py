"""TRL with `environment_factory`, as its documentation recommends."""

from pathlib import Path

from benchmarks.trl_contenders import base
from benchmarks.trl_contenders.base import Job, Run
from benchmarks.trl_contenders.environment import DeskTools
from benchmarks.trl_contenders.trainer import train
from benchmarks.workload import read_workload


def run(job: Job, folder: Path) -> Run:
    """Train with TRL, which calls the tools of a batch one after the other, and generates for all rollouts at once."""
    workload = read_workload(job.workload)
    rows = [{"prompt": [{"role": "user", "content": ""}], "seed": seed} for seed in range(base.TASKS)]
    return train(job, folder, rows, environment_factory=lambda: DeskTools(workload))
