"""The modes that are compared, each a few settings of the recipe; everything else is the same for all of them."""

from pathlib import Path
from typing import Any

from benchmarks.desk import ENVIRONMENT
from benchmarks.modes.start import ACTING, REASONING
from quartet.config import Recipe
from quartet.recipe.file import parse_recipe

COUPLED, DECOUPLED, APRIL = "batch_synchronous", "rollout_wise", "april"
ROLLOUTS_PER_GROUP = 8
MAX_TURNS = 20

Overrides = dict[str, dict[str, Any]]
"""Section -> setting -> value."""


def modes(max_lag: int) -> dict[str, Overrides]:
    """Return the settings of each mode, by name."""
    return {
        COUPLED: {"admission": {"schedule": "batch_synchronous", "max_lag": 0}},
        "one_step_off": {"admission": {"schedule": "one_step_off", "max_lag": 1}},
        "task_wise": {"admission": {"schedule": "task_wise", "max_lag": max_lag}},
        APRIL: {
            "admission": {"schedule": "batch_synchronous", "max_lag": max_lag},
            "straggler": {"name": "april"},
        },
        DECOUPLED: {"admission": {"schedule": "rollout_wise", "max_lag": max_lag}},
    }


def recipe(policy: Path, workload: Path, *overrides: Overrides, groups: int, sessions: int, seed: int) -> Recipe:
    """Return the recipe of a run on the desk. It has no filter, so that every finished rollout is trained on."""
    data: dict[str, Any] = {
        "name": "decoupling",
        "seed": seed,
        "model": {"path": str(policy)},
        "env": {"name": ENVIRONMENT, "workload": str(workload), "sessions": sessions, "screenshots": False},
        "rollout": {"loop": "latest", "max_turns": MAX_TURNS, "max_tokens": ACTING.max_tokens},
        "engine": {"max_slots": 128, "max_context_tokens": 1024},
        "control": {"sampler": "uniform", "rollouts_per_group": ROLLOUTS_PER_GROUP},
        "admission": {},
        "filters": [],
        "train": {"groups_per_batch": groups, "learning_rate": 1e-5, "train_steps_per_checkpoint": 10},
        "evaluation": {"before_and_after": False},
    }
    for override in overrides:
        for section, settings in override.items():
            data[section] = data.get(section, {}) | settings
    return parse_recipe(data, "benchmarks.modes.modes")


def single_turn(policy: Path) -> Overrides:
    """Return the settings of APRIL's workload: one long response per rollout."""
    return {
        "rollout": {"max_turns": 1, "max_tokens": REASONING.max_tokens},
        "engine": {"max_context_tokens": 2 * REASONING.max_tokens},
        "model": {"path": str(policy)},
    }
