"""What a run that is killed on purpose trains, and how soon it takes somebody for dead."""

from pathlib import Path

from benchmarks.bandit import bandit_recipe
from quartet.config import Recipe

LEASE_SECONDS, HEARTBEAT_TIMEOUT_SECONDS = 1.5, 20.0


def crash_recipe(policy: Path, *, train_steps_per_checkpoint: int = 1, ledger_url: str = "") -> Recipe:
    """A run that would go on for ever, forgives every death, and keeps receipts."""
    return bandit_recipe(
        policy,
        rollout={"lease_seconds": LEASE_SECONDS, "max_attempts": 20},
        control={"rollouts_per_group": 4},
        train={
            "learning_rate": 1e-5,
            "max_train_steps": 1_000_000,
            "max_seconds": 36_000.0,
            "train_steps_per_checkpoint": train_steps_per_checkpoint,
        },
        evaluation={"before_and_after": False, "train_steps_per_evaluation": 3, "episodes_per_family_during": 2},
        replay={"name": "success_pool"},
        disk={"keep_policies": 6, "keep_checkpoints": 1},
        ledger={"url": ledger_url},
        runtime={
            "receipts": True,
            "max_restarts_per_module": 1_000_000,
            "max_restart_delay_seconds": 0.25,
            "heartbeat_timeout_seconds": HEARTBEAT_TIMEOUT_SECONDS,
        },
    )
