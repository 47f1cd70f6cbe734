"""The compared variants, and the conditions under which they run.

A variant is plain GRPO with a few changed settings; a condition is a suite of locks and a turn limit. The report uses
their names.
"""

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from quartet.config import Recipe
from quartet.recipe.file import load_recipe, parse_recipe
from quartet.recipe.toml_text import toml_value

RECIPES = Path(__file__).parents[2] / "recipes"
Demonstrations = Literal["unseen", "pooled", "imitated", "pooled and imitated"]


class Variant(Struct, frozen=True, kw_only=True):
    options: list[str]
    """Recipe settings that differ from plain GRPO, as `--set` takes them."""
    demonstrations: Demonstrations = "unseen"
    """Use of the expert's successes on hard locks: unused, put into the success pool, or imitated by the initial
    policy."""

    @property
    def pooled(self) -> bool:
        return self.demonstrations.startswith("pooled")

    @property
    def imitated(self) -> bool:
        return self.demonstrations.endswith("imitated")


class Condition(Struct, frozen=True, kw_only=True):
    suite: str
    options: list[str] = []
    """Settings that all variants have in this condition."""
    variants: tuple[str, ...] = ()
    """Variants that are compared by default; empty means all."""


CONDITIONS: dict[str, Condition] = {
    "locks": Condition(suite="locks"),
    "locks-2": Condition(suite="locks-2"),
    "locks-roomy": Condition(
        suite="locks",
        options=["rollout.max_turns=24", "engine.max_context_tokens=192"],
        variants=("grpo", "dynamic_length", "all_but_entropy"),
    ),
}
"""Conditions by name. The turn limit of plain GRPO was tuned to 8, and the hardest lock needs 6 presses. If the length
of a task is not known, the limit has to be higher: DART's is 30, and its successes take less than 10 turns.
`locks-roomy` has a similar ratio."""


GRPO: dict[str, Any] = {
    "name": "locks",
    "env": {"name": "locks", "sessions": 64, "screenshots": False},
    "rollout": {"max_turns": 8, "max_tokens": 2, "lease_seconds": 300.0},
    "engine": {"max_slots": 64, "max_context_tokens": 96},
    "control": {"sampler": "uniform", "rollouts_per_group": 8, "train_seeds_per_family": 4},
    "admission": {"max_lag": 2},
    "filters": ["mixed_outcome"],
    "train": {
        "groups_per_batch": 4,
        "minibatches": 2,
        "epochs": 4,
        "learning_rate": 2e-3,
        "max_tokens_per_microbatch": 8192,
        "train_steps_per_checkpoint": 1_000_000,
    },
    "loss": {
        "aggregation": "sequence_mean",
        "terms": [{"name": "ppo_clip", "importance": "none"}, {"name": "entropy", "weight": 0.05}],
    },
}
"""Recipe of plain GRPO: fixed number of rollouts, fixed turn limit, all turns trained, no importance weight, no replay.
Groups without contrast are dropped, as they have no gradient. Hyper-parameters were chosen for this variant, on the
suite `locks` and seeds 0 to 4."""

_DYNAMIC_ROLLOUTS = ["control.allocator=dynamic"]
_DYNAMIC_LENGTH = ["control.horizon=longest_success"]
_HIGH_ENTROPY = ["train.min_turn_entropy_percentile=20"]
_TRUNCATED_IS = ["loss.terms.ppo_clip.importance=truncate", "loss.terms.ppo_clip.importance_cap=1.0"]
_POOL = ["replay.name=success_pool", "replay.rule=recompute"]
_SUCCESS_POOL = [*_POOL, "replay.mode=substitute", "replay.max_replays=32"]
_ALL_BUT_ENTROPY = [*_DYNAMIC_ROLLOUTS, *_DYNAMIC_LENGTH, *_TRUNCATED_IS, *_SUCCESS_POOL]
_FORKS = [
    *("rollout.brancher=entropy", "rollout.brancher.min_entropy_nats=0.5", "rollout.brancher.max_forks_per_group=4"),
    "control.rollouts_per_group=4",
]
"""Settings of the recipe `locks_forks`: four rollouts and up to four forks, instead of eight rollouts."""

METHOD_SECTIONS = ("control", "replay", "credit", "loss")
METHOD_TRAIN_SETTINGS = (
    *("minibatches", "epochs", "weight_decay", "adam_beta1", "adam_beta2", "max_grad_norm"),
    *("min_turn_entropy_percentile", "exempt_replayed_turns"),
)
SIZE_SETTINGS = ("control.train_seeds_per_family",)
"""Settings of `METHOD_SECTIONS` that depend on the environment and are not part of the method."""


def method_of(name: str) -> list[str]:
    """Return the method of a shipped recipe as values of `--set`.

    Model, environment, learning rate and budget are left out, since the benchmark sets them.
    """
    recipe = load_recipe(RECIPES / name / "recipe.toml").model_dump(mode="json", exclude_none=True)
    method = {f"{section}.{key}": value for section in METHOD_SECTIONS for key, value in recipe[section].items()}
    method |= {f"train.{key}": recipe["train"][key] for key in METHOD_TRAIN_SETTINGS} | {"filters": recipe["filters"]}
    return [f"{key}={toml_value(value)}" for key, value in method.items() if key not in SIZE_SETTINGS]


BASELINE = "grpo"
VARIANTS: dict[str, Variant] = {
    BASELINE: Variant(options=[]),
    "dynamic_rollouts": Variant(options=_DYNAMIC_ROLLOUTS),
    "dynamic_length": Variant(options=_DYNAMIC_LENGTH),
    "high_entropy": Variant(options=_HIGH_ENTROPY),
    "truncated_is": Variant(options=_TRUNCATED_IS),
    "success_pool": Variant(options=_SUCCESS_POOL, demonstrations="pooled"),
    "grpo_sft": Variant(options=[], demonstrations="imitated"),
    "pool_sft": Variant(options=_SUCCESS_POOL, demonstrations="pooled and imitated"),
    "all": Variant(
        options=[*_ALL_BUT_ENTROPY, *_HIGH_ENTROPY, "train.exempt_replayed_turns=true"], demonstrations="pooled"
    ),
    "all_but_entropy": Variant(options=_ALL_BUT_ENTROPY, demonstrations="pooled"),
    "forks": Variant(options=_FORKS),
    "dart": Variant(options=method_of("dart")),
    "dart_paper": Variant(options=method_of("dart_paper")),
    "dart_code": Variant(options=method_of("dart_code")),
    "dart_paper_demonstrated": Variant(options=method_of("dart_paper"), demonstrations="pooled"),
    "dart_code_demonstrated": Variant(options=method_of("dart_code"), demonstrations="pooled"),
}
"""Variants by name. `all` adds DART's five parts and demonstrations to plain GRPO, which has four epochs and an entropy
bonus; `all_but_entropy` does the same without high-entropy step selection. `dart`, `dart_paper` and `dart_code` are the
methods of the recipes with these names: no demonstrations, one epoch, no entropy bonus."""


def recipe_of(options: list[str], *, suite: str, policy: str, seed: int) -> Recipe:
    """Return the recipe of plain GRPO with some options, on one suite, with one initial policy."""
    return grpo_with([*options, f"env.suite={suite}", f"model.path={policy}", f"seed={seed}"])


def grpo_with(overrides: list[str]) -> Recipe:
    """Return the recipe of plain GRPO with some settings, as values of `--set`; one of them is `model.path`."""
    return parse_recipe(GRPO, "benchmarks/locks/variants.py", overrides)
