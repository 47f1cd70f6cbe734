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


@pytest.fixture(scope="session")
def small_runs(tmp_path_factory, bandit_policy) -> list[Path]:
    """`slow-0`, `slow-1`, `fast-0`, `fast-1`: methods that differ in their learning rate, seeds 0 and 1."""
    folder, runs = tmp_path_factory.mktemp("runs"), list[Path]()
    for name, rate in (("slow", 1e-3), ("fast", 5e-3)):
        for seed in (0, 1):
            train = {"groups_per_batch": 2, "max_train_steps": 2, "learning_rate": rate}
            recipe = bandit_recipe(bandit_policy, train=train, **SMALL).model_copy(update={"seed": seed})
            runs.append(folder / f"{name}-{seed}")
            run_recipe(recipe, runs[-1], resume=False, fresh=False, quiet=True)
    return runs
