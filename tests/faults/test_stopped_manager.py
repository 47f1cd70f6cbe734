"""A whole run whose data manager is stopped until all other modules wait for it, and then goes on."""

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from quartet.ledger import Ledger
from quartet.report.check import check_ledger
from tests.live_runs import Wait, died, promises_hold, slow_learner, train_while

pytestmark = pytest.mark.campaign


def test_a_stopped_data_manager_costs_time_only(bandit_policy: Path, tmp_path: Path) -> None:
    # With a usual timeout the supervisor would replace the module; test_supervisor.py shows that.
    recipe = slow_learner(bandit_policy, 10_000, runtime={"heartbeat_timeout_seconds": 1000.0})

    def act(ledger: Ledger, wait: Wait) -> None:
        pid = next(row.pid for row in ledger.modules.all() if row.module == "manager")
        os.kill(pid, signal.SIGSTOP)
        try:
            wait(lambda: not any(ledger.statistics.queue_sizes().rollouts.values()))
            stood_at = ledger.batches.train_step()
        finally:
            os.kill(pid, signal.SIGCONT)
        wait(lambda: ledger.batches.train_step() >= stood_at + 3)
        assert died(ledger) == []
        assert next(row.pid for row in ledger.modules.all() if row.module == "manager") == pid

    promises_hold(tmp_path / "run", train_while(tmp_path / "run", recipe, act))
    with closing(Ledger.view(tmp_path / "run")) as ledger:
        assert not check_ledger(ledger, recipe.admission.max_lag).findings
