"""A whole run whose engine takes deltas of the weights, while engine and trainer are killed and a delta is torn."""

import fcntl
import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.engine.service import LOADING_FILE
from quartet.ledger import Ledger
from quartet.policy.delta_file import DELTA_FILE
from quartet.policy.weights import weights_bytes
from quartet.report.totals import status_counts
from quartet.telemetry.records import read_records
from tests.live_runs import Wait, train_while

pytestmark = pytest.mark.campaign

TRAIN = {"max_train_steps": 10_000, "learning_rate": 1e-6, "publish_dtype": "bfloat16", "max_seconds": 1000.0}


def kill(ledger: Ledger, wait: Wait, module: str) -> None:
    """Kill a module, and wait until the run has gone on without it and with its successor."""
    pid = next(row.pid for row in ledger.modules.all() if row.module == module)
    os.kill(pid, signal.SIGKILL)
    after = ledger.batches.train_step() + 4
    wait(lambda: ledger.batches.train_step() >= after)


def tear_a_delta(ledger: Ledger, wait: Wait) -> int:
    """Tear the newest delta before the engine reads it, and return its version once the engine has settled it."""
    with (ledger.run_dir / LOADING_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the engine serves on, and loads nothing
        before = ledger.policies.latest().version
        wait(lambda: ledger.policies.latest().version > before)
        torn = ledger.policies.latest()
        file = Path(torn.path) / DELTA_FILE
        file.write_bytes(file.read_bytes()[:-5])
    wait(lambda: ledger.policies.settled_version() >= torn.version)
    return torn.version


def test_deltas_survive_killed_modules_and_a_torn_file(bandit_policy: Path, tmp_path: Path) -> None:
    recipe = bandit_recipe(
        bandit_policy,
        evaluation={"before_and_after": False},
        rollout={"lease_seconds": 60.0},  # requests outlive a restart on a busy machine
        train=TRAIN,
        publisher={"name": "delta"},
    )
    torn: list[int] = []

    def act(ledger: Ledger, wait: Wait) -> None:
        kill(ledger, wait, "engine")
        kill(ledger, wait, "trainer")
        torn.append(tear_a_delta(ledger, wait))
        after = ledger.batches.train_step() + 4
        wait(lambda: ledger.batches.train_step() >= after)

    summary = train_while(tmp_path / "run", recipe, act)
    assert (summary["lost"], summary["trained_twice"]) == (0, 0)
    with closing(Ledger.open(tmp_path / "run")) as ledger:
        assert "error_engine" not in status_counts(ledger)
        assert not [event for event in ledger.events() if event.kind == "policy_refused"]
        whole = weights_bytes(Path(ledger.policies.latest().path)) / 1e6
    loads = [load for load in read_records(tmp_path / "run", "engine") if "loaded_version" in load]
    fallback = next(load for load in loads if load["loaded_version"] >= torn[0])
    assert fallback["read_megabytes"] == whole
    assert sum(load["read_megabytes"] < whole / 2 for load in loads) >= 4, "deltas were in use all the while"
