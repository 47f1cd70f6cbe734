"""Quartet: the supervisor, all four modules, ledger, engine and HTTP, as `quartet train` starts them."""

from pathlib import Path
from typing import Any

from benchmarks.desk import ENVIRONMENT
from benchmarks.trl_contenders import base
from benchmarks.trl_contenders.base import Job, Run, TrainStep
from quartet.config import Recipe
from quartet.recipe.file import parse_recipe
from quartet.runtime.run import run_recipe
from quartet.telemetry.records import read_records

MAX_LAG = 2
CLIP = {"name": "ppo_clip", "clip_low": base.CLIP_LOW, "clip_high": base.CLIP_HIGH, "dual_clip": 1e9}
"""Settings of the loss; the dual clip is disabled, since TRL's loss has none."""
SESSIONS = base.ROLLOUTS_PER_STEP
"""Number of sessions, equal to the number of environments that TRL steps at once."""


class Ours:
    name = "quartet"

    def run(self, job: Job, folder: Path) -> Run:
        """Train some steps more than requested, which are not counted.

        Admission ends before the last steps of a run, so these would have the machine alone.
        """
        recipe = recipe_of(job, train_steps=job.train_steps + MAX_LAG + 1)
        run_recipe(recipe, folder / "run", resume=False, fresh=False, quiet=True)
        return _read(folder / "run", job.train_steps)

    def close(self) -> None:
        """Do nothing: every run ends its own processes."""


def recipe_of(job: Job, *, train_steps: int) -> Recipe:
    """Return the recipe: the settings that all contenders share, with the schedule `rollout_wise` and bounded lag."""
    threads = max(1, job.threads // 2)  # engine and trainer work at the same time
    return parse_recipe(
        {
            "name": "against-trl",
            "seed": job.seed,
            "model": {"path": job.policy},
            "env": {"name": ENVIRONMENT, "workload": job.workload, "sessions": SESSIONS, "screenshots": False},
            "rollout": {
                "loop": "append",
                "max_turns": base.MAX_PRESSES + 1,
                "max_tokens": base.TURN_TOKENS,
                "system_prompt": "",  # the conversation that TRL has
            },
            "engine": {"max_context_tokens": base.MAX_CONTEXT_TOKENS, "max_slots": SESSIONS, "threads": threads},
            "control": {
                "sampler": "uniform",
                "rollouts_per_group": base.ROLLOUTS_PER_GROUP,
                "train_seeds_per_family": base.TASKS,
            },
            "admission": {"max_lag": MAX_LAG},
            "filters": [],
            "train": {
                "groups_per_batch": base.GROUPS_PER_STEP,
                "learning_rate": base.LEARNING_RATE,
                "adam_beta1": base.ADAM_BETAS[0],
                "adam_beta2": base.ADAM_BETAS[1],
                "max_grad_norm": base.MAX_GRAD_NORM,
                "max_train_steps": train_steps,
                "train_steps_per_checkpoint": 10,
                "threads": threads,
            },
            "loss": {"terms": [CLIP]},
            "evaluation": {"before_and_after": False},
        },
        "benchmarks.trl_contenders.ours",
    )


def _read(run_dir: Path, train_steps: int) -> Run:
    return Run([_step(record) for record in list(read_records(run_dir, "train"))[:train_steps]])


def _step(record: dict[str, Any]) -> TrainStep:
    generated = record["trained_tokens"] + record["masked_tokens"]
    return TrainStep(
        ended=record["time"],
        reward=record["reward_mean"],
        generated_tokens=generated / base.ROLLOUTS_PER_STEP,
        trained_share=record["trained_tokens"] / generated,
    )
