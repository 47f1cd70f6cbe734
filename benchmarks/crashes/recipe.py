"""Recipe of a run whose processes are killed on purpose: tasks, checkpoints, engines, and short timeouts."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from benchmarks.bandit import bandit_recipe
from quartet.config import Recipe

LEASE_SECONDS, HEARTBEAT_TIMEOUT_SECONDS, LEDGER_TIMEOUT_SECONDS = 1.5, 20.0, 10.0
FREEZE_SECONDS = 4.0
"""Duration of a freeze of the database server that is shorter than every timeout of the run."""


class Setting(Struct, frozen=True, kw_only=True):
    """Variant of the run: frequency of checkpoints, number of engines, kept policies, further sections."""

    train_steps_per_checkpoint: int = 1
    keep_policies: int = 6
    engines: int = 1
    sections: dict[str, dict[str, Any]] = {}
    """Sections merged over the recipe."""


SETTINGS = {
    "few": Setting(train_steps_per_checkpoint=3, keep_policies=1, engines=2),
    "dense": Setting(),
    "sparse": Setting(train_steps_per_checkpoint=2),
    "two_policies": Setting(
        sections={
            "policies": {"even": {}, "odd": {}},
            "env": {"name": "pennies", "families": ["pennies"]},
            "rollout": {"loop": "alternate", "max_turns": 1},
        }
    ),
}
"""Settings by name; a campaign uses them in turn."""


def crash_recipe(policy: Path, setting: Setting, *, ledger_url: str = "") -> Recipe:
    """Return the recipe of a run without an end that allows any number of restarts and writes receipts."""
    sections: dict[str, dict[str, Any]] = {
        "rollout": {"lease_seconds": LEASE_SECONDS, "max_attempts": 20},
        "control": {"rollouts_per_group": 4, "allocator": "benchmarks.crashes.rounds:TwoRounds"},
        "train": {
            "learning_rate": 1e-5,
            "max_train_steps": 1_000_000,
            "max_seconds": 36_000.0,
            "train_steps_per_checkpoint": setting.train_steps_per_checkpoint,
        },
        "evaluation": {"before_and_after": False, "train_steps_per_evaluation": 3, "episodes_per_family_during": 2},
        "replay": {"name": "success_pool"},
        "engine": {"replicas": setting.engines},
        "disk": {"keep_policies": setting.keep_policies, "keep_checkpoints": 1},
        "ledger": {"url": ledger_url},
        "runtime": {
            "receipts": True,
            "max_restarts_per_module": 1_000_000,
            "max_restart_delay_seconds": 0.25,
            "heartbeat_timeout_seconds": HEARTBEAT_TIMEOUT_SECONDS,
            "ledger_timeout_seconds": LEDGER_TIMEOUT_SECONDS,
        },
    }
    own = {name: sections.get(name, {}) | values for name, values in setting.sections.items()}
    return bandit_recipe(policy, **sections | own)
