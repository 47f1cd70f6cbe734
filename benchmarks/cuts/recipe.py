"""Recipe of a run on several nodes: servers on all addresses of their node, and timeouts that suit the cuts."""

from pathlib import Path

from benchmarks.crashes.recipe import Setting, crash_recipe
from quartet.config import Recipe

LEASE_SECONDS, LEDGER_TIMEOUT_SECONDS, HEARTBEAT_TIMEOUT_SECONDS = 6.0, 60.0, 90.0
CUT_SECONDS = (1.2 * LEASE_SECONDS, 1.8 * LEASE_SECONDS)
"""Shortest and longest cut: longer than a lease, shorter than a module waits for the database."""
OUTAGE_SECONDS = 1.2 * LEDGER_TIMEOUT_SECONDS
"""Duration of a cut that no module waits out."""
LATENCY_SECONDS, LOSS = 0.3, 0.02


def cut_recipe(policy: Path, ledger_url: str) -> Recipe:
    """Return the recipe of a run without an end, which writes receipts."""
    sections = {
        "rollout": {"lease_seconds": LEASE_SECONDS},
        "env": {"sessions": 4},
        "runtime": {
            "engine_host": "0.0.0.0",
            "env_host": "0.0.0.0",
            "ledger_timeout_seconds": LEDGER_TIMEOUT_SECONDS,
            "heartbeat_timeout_seconds": HEARTBEAT_TIMEOUT_SECONDS,
        },
    }
    return crash_recipe(policy, Setting(train_steps_per_checkpoint=2, sections=sections), ledger_url=ledger_url)
