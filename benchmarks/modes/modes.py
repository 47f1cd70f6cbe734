"""The modes that are compared, each a few settings of the recipe; everything else is the same for all of them."""

from typing import Any

from benchmarks.modes.worlds import Overrides
from quartet.config import Recipe
from quartet.recipe.file import parse_recipe

COUPLED, DECOUPLED, APRIL = "batch_synchronous", "rollout_wise", "april"
ONE_STEP_OFF, ONE_VERSION, ROLLART = "one_step_off", "one version", "rollart"
ROLLOUTS_PER_GROUP = 8


def modes(max_lag: int) -> dict[str, Overrides]:
    """Return the settings of each mode, by name."""
    return {
        COUPLED: {"admission": {"schedule": "batch_synchronous", "max_lag": 0}},
        ONE_STEP_OFF: {"admission": {"schedule": ONE_STEP_OFF, "max_lag": 1}},
        "task_wise": {"admission": {"schedule": "task_wise", "max_lag": max_lag}},
        APRIL: {
            "admission": {"schedule": "batch_synchronous", "max_lag": max_lag},
            "straggler": {"name": "april"},
        },
        DECOUPLED: {"admission": {"schedule": "rollout_wise", "max_lag": max_lag}},
    }


ROLLART_MODES: dict[str, Overrides] = {
    COUPLED: modes(1)[COUPLED],
    ONE_STEP_OFF: modes(1)[ONE_STEP_OFF],
    ONE_VERSION: modes(1)[DECOUPLED],
    ROLLART: {
        "admission": {"schedule": "rollout_wise", "max_lag": 1, "on_late": "drop"},
        "straggler": {"name": "redundancy", "extra_rollouts": 2},
    },
}
"""Systems to which RollArt is compared, its lag alone, and its lag with two redundant rollouts per group."""


def recipe(world: Overrides, mode: Overrides, *, groups: int, sessions: int, seed: int) -> Recipe:
    """Return the recipe of a run. It has no filter, so that every finished rollout is trained on."""
    data: dict[str, Any] = {
        "name": "decoupling",
        "seed": seed,
        "rollout": {"loop": "latest"},
        "control": {"sampler": "uniform", "rollouts_per_group": ROLLOUTS_PER_GROUP},
        "filters": [],
        "train": {"groups_per_batch": groups, "learning_rate": 1e-5, "train_steps_per_checkpoint": 10},
        "evaluation": {"before_and_after": False},
    }
    own: Overrides = {"env": {"sessions": sessions, "screenshots": False}}
    for settings in (world, own, mode):
        for section, chosen in settings.items():
            data[section] = data.get(section, {}) | chosen
    return parse_recipe(data, "benchmarks.modes.modes")
