"""The compared settings (arms): the lag of the trained trajectories, and the objective."""

from collections.abc import Sequence

from msgspec import Struct

from benchmarks.locks.variants import recipe_of
from quartet.config import Recipe

SYNCHRONOUS = "synchronous"
FAMILIES = ["latch", "hook", "knob", "chain"]
"""Three easy locks, which are learned within a run, and one of medium difficulty, which is learned only in part."""
SETTING = [
    f"env.families={FAMILIES}",
    "rollout.max_turns=3",
    "filters=[]",
    "train.groups_per_batch=8",
    "train.minibatches=2",
    "train.epochs=1",
    "train.max_train_steps=150",
    "train.learning_rate=5e-4",
    "train.decay_steps=300",
    "disk.max_token_values_megabytes=0",
]
"""Settings of every arm, over plain GRPO of `benchmarks/curation.py`; chosen on seeds 0 to 5. No group is dropped, so
that every arm samples and trains the same number of trajectories. At twice the learning rate runs with a lag of 4
collapse."""
OBJECTIVES = {
    "decoupled": "{name = 'ppo_clip', dual_clip = 1e9, importance = 'mask', importance_cap = 5.0}",
    "naive PPO": "{name = 'benchmarks.lag.naive_ppo:NaivePpo', dual_clip = 1e9, importance = 'none'}",
}
"""Objective -> its policy term. `decoupled` is AReaL's objective; without lag its importance weights are 1."""


class Arm(Struct, frozen=True, kw_only=True):
    """One setting that is compared: a lag bound and an objective."""

    objective: str
    max_lag: int

    def recipe(self, policy: str, seed: int, options: Sequence[str] = ()) -> Recipe:
        """Return the recipe of one run; `options` are applied last."""
        lag = f"admission.max_lag={self.max_lag}"
        terms = f"loss.terms=[{OBJECTIVES[self.objective]}, {{name = 'entropy', weight = 0.01}}]"
        return recipe_of([*SETTING, terms, lag, *options], suite="locks", policy=policy, seed=seed)


def arms(max_lags: Sequence[int]) -> dict[str, Arm]:
    """Return the arms by name: the synchronous arm, then every objective with every lag bound."""
    lagging = {
        f"{objective}, max_lag {max_lag}": Arm(objective=objective, max_lag=max_lag)
        for max_lag in max_lags
        for objective in OBJECTIVES
    }
    return {SYNCHRONOUS: Arm(objective="decoupled", max_lag=0), **lagging}
