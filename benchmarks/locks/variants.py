"""What is compared, and on what. A variant is plain GRPO and a few named options; a condition is a suite of locks and a
turn limit. Their names are those in the report."""

from typing import Any, Literal

from msgspec import Struct

from quartet.config import Recipe
from quartet.recipe_file import apply_override, parse_recipe

Demonstrations = Literal["unseen", "pooled", "imitated", "pooled and imitated"]


class Variant(Struct, frozen=True, kw_only=True):
    options: list[str]
    """Recipe knobs that differ from plain GRPO, as `--set` takes them."""
    demonstrations: Demonstrations = "unseen"
    """What becomes of the expert's successes on hard locks: nothing, they go into the pool, the start imitates them."""

    @property
    def pooled(self) -> bool:
        return self.demonstrations.startswith("pooled")

    @property
    def imitated(self) -> bool:
        return self.demonstrations.endswith("imitated")


class Condition(Struct, frozen=True, kw_only=True):
    suite: str
    options: list[str] = []
    """The same for every variant."""
    variants: tuple[str, ...] = ()
    """What is compared here by default; nothing means every variant."""


CONDITIONS: dict[str, Condition] = {
    "locks": Condition(suite="locks"),
    "locks-2": Condition(suite="locks-2"),
    "locks-roomy": Condition(
        suite="locks",
        options=["rollout.max_turns=24", "engine.max_context_tokens=192"],
        variants=("grpo", "dynamic_length", "all_but_entropy"),
    ),
}
"""The turn limit of plain GRPO is tuned: 8, while the hardest lock needs 6 presses. Who does not know what a task needs
leaves room, as DART does: 30 turns, while its successes take less than 10. `locks-roomy` leaves as much."""


GRPO: dict[str, Any] = {
    "name": "locks",
    "env": {"name": "locks", "sessions": 64, "screenshots": False},
    "rollout": {"max_turns": 8, "max_tokens": 2, "lease_seconds": 300.0},
    "engine": {"max_slots": 64, "max_context_tokens": 96},
    "control": {"sampler": "uniform", "rollouts_per_group": 8, "train_seeds_per_family": 4},
    "admission": {"max_lag": 2},
    "train": {
        "groups_per_batch": 4,
        "minibatches": 2,
        "epochs": 4,
        "learning_rate": 2e-3,
        "max_tokens_per_microbatch": 8192,
        "train_steps_per_checkpoint": 1_000_000,
    },
    "loss": {"importance": "none", "aggregation": "sequence_mean", "entropy_coefficient": 0.05},
}
"""Fixed rollouts, fixed turn limit, all turns, no importance weight, no replay. Groups without contrast are dropped, as
they have no gradient. Hyper-parameters were chosen for this variant, on the suite `locks` and seeds 0 to 4."""

_DYNAMIC_ROLLOUTS = ["control.allocator=dynamic"]
_DYNAMIC_LENGTH = ["control.horizon=longest_success"]
_HIGH_ENTROPY = ["train.min_turn_entropy_percentile=20"]
_TRUNCATED_IS = ["loss.importance=truncate", "loss.importance_cap=1.0"]
_POOL = ["replay.name=success_pool", "replay.rule=recompute"]
_SUCCESS_POOL = [*_POOL, "replay.mode=substitute", "replay.max_replays=32"]
_ALL_BUT_ENTROPY = [*_DYNAMIC_ROLLOUTS, *_DYNAMIC_LENGTH, *_TRUNCATED_IS, *_SUCCESS_POOL]
_OVER_STEPS = ["advantage.name=grpo_steps", "loss.kl_coefficient=0.1"]
_DART_PAPER = [
    *("control.allocator=dynamic", "control.dynamic_rollouts.min_rollouts=2"),
    *("control.horizon=longest_success", "control.longest_success.min_successes=1"),
    *("control.longest_success.factor=1.0", "control.longest_success.groups_per_exploration=1000000"),
    "control.longest_success.truncated_share=1.0",
    *(*_HIGH_ENTROPY, *_TRUNCATED_IS, *_POOL, *_OVER_STEPS, "loss.aggregation=token_mean"),
]
"""Recipe `dart_paper`. Where the pool has demonstrations only `recompute` can learn from them."""
_DART_CODE = [
    *(*_TRUNCATED_IS, *_POOL, "replay.mode=substitute", "replay.choice=newest", "replay.max_replays=1000000"),
    *(*_OVER_STEPS, "loss.name=gspo", "loss.clip_low=0.1", "loss.clip_high=0.28", "loss.aggregation=branch_mean"),
]
"""Recipe `dart_code`."""

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
        options=[*_ALL_BUT_ENTROPY, *_HIGH_ENTROPY, "train.spare_replayed_turns=true"], demonstrations="pooled"
    ),
    "all_but_entropy": Variant(options=_ALL_BUT_ENTROPY, demonstrations="pooled"),
    "dart_paper": Variant(options=_DART_PAPER, demonstrations="pooled"),
    "dart_code": Variant(options=_DART_CODE, demonstrations="pooled"),
}
"""`all` is DART's five parts together, `all_but_entropy` is recipe `dart`."""


def recipe_of(options: list[str], *, suite: str, policy: str, seed: int) -> Recipe:
    """Plain GRPO with some options, on one suite from one start."""
    data = {section: dict(values) if isinstance(values, dict) else values for section, values in GRPO.items()}
    overrides = [*options, f"env.suite={suite}", f"model.path={policy}", f"seed={seed}"]
    for override in overrides:
        apply_override(data, override)
    return parse_recipe(data, "benchmarks/locks/variants.py", overrides)
