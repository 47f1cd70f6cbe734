"""Replicas of vLLM that a real Ray cluster of this machine places."""

import importlib.util
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.bandit import make_bandit_policy
from quartet.ledger import Ledger
from tests import live_runs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="`make test-vllm` installs vLLM and Ray"),
]


def test_a_run_outlasts_a_killed_replica_and_keeps_its_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_runs, "TIMEOUT_SECONDS", 600)  # two servers start on the CPU, one of them twice
    recipe = live_runs.slow_learner(
        make_bandit_policy(tmp_path / "policy", num_heads=1),
        1000,
        runtime={"kind": "ray"},
        engine={"name": "vllm", "replicas": 2, "arguments": ["--enforce-eager"], "max_context_tokens": 256},
        placement={"engine": {"gpus": 0, "cpus": 0.5}, "env": {"cpus": 0.5}, "worker": {"cpus": 0.5}},
    )

    def kill(ledger: Ledger, wait: Callable[[Callable[[], object]], object]) -> None:
        pid = next(row.pid for row in ledger.modules.all() if row.module == "engine-2")
        os.kill(pid, signal.SIGKILL)
        wait(lambda: live_runs.died(ledger) == ["engine-2"])
        wait(lambda: any(row.module == "engine-2" and row.pid != pid and row.url for row in ledger.modules.all()))
        step = ledger.batches.train_step()
        wait(lambda: ledger.batches.train_step() > step)

    summary = live_runs.train_while(tmp_path / "run", recipe, kill)
    live_runs.promises_hold(tmp_path / "run", summary)
