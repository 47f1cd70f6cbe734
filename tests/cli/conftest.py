"""Real runs, small enough to be made once: two ways to train the bandit, two seeds each."""

from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.runtime.run import run_recipe

SMALL = {
    "runtime": {"kind": "synchronous"},
    "rollout": {"max_turns": 1, "max_tokens": 8, "temperature": 1.2},
    "evaluation": {"episodes_per_family": 4},
}


METHODS = {"slow": 1e-3, "fast": 5e-3}
"""Learning rates."""


@pytest.fixture(scope="session")
def small_runs(made_once, bandit_policy) -> list[Path]:
    """`slow-0`, `slow-1`, `fast-0`, `fast-1`: methods that differ in their learning rate, seeds 0 and 1."""

    def make(folder: Path) -> None:
        for name, rate in METHODS.items():
            train = {"groups_per_batch": 2, "max_train_steps": 2, "learning_rate": rate}
            recipe = bandit_recipe(bandit_policy, train=train, **SMALL)
            for seed in (0, 1):
                of_seed = recipe.model_copy(update={"seed": seed})
                run_recipe(of_seed, folder / f"{name}-{seed}", resume=False, fresh=False, quiet=True)

    folder = made_once("small-runs", make)
    return [folder / f"{name}-{seed}" for name in METHODS for seed in (0, 1)]
