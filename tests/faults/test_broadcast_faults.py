"""A whole run whose two engines receive weights from the trainer's memory, while engine and trainer are killed."""

from pathlib import Path

import pytest
from test_delta_faults import kill

from benchmarks.bandit import bandit_recipe
from quartet.ledger import Ledger
from quartet.telemetry.records import read_records
from tests.live_runs import Wait, promises_hold, train_while

pytestmark = pytest.mark.campaign


def test_broadcasts_survive_killed_engines_and_trainers(bandit_policy: Path, tmp_path: Path) -> None:
    recipe = bandit_recipe(
        bandit_policy,
        evaluation={"before_and_after": False},
        engine={"replicas": 2},
        rollout={"lease_seconds": 60.0},  # requests outlive a restart on a busy machine
        train={"max_train_steps": 10_000, "learning_rate": 1e-6, "max_seconds": 1000.0},
        publisher={"name": "broadcast", "timeout_seconds": 10.0},
    )

    def act(ledger: Ledger, wait: Wait) -> None:
        for module in ("engine-2", "trainer", "engine"):
            kill(ledger, wait, module)
        wait(ledger.policies.latest_is_settled)

    promises_hold(tmp_path / "run", train_while(tmp_path / "run", recipe, act))
    loaded = [record["role"] for record in read_records(tmp_path / "run", "engine") if "loaded_version" in record]
    for engine in ("engine", "engine-2"):
        log = (tmp_path / "run" / "logs" / f"{engine}.jsonl").read_text()
        assert loaded.count(engine) > log.count("reading the whole weights"), "most came from the trainer"
