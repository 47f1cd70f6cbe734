"""A PostgreSQL server that freezes, or is cut off without a reset, under a whole run."""

import time
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.crashes.crash_run import CrashRun
from benchmarks.crashes.processes import everybody
from benchmarks.crashes.recipe import FREEZE_SECONDS, SETTINGS, crash_recipe
from benchmarks.postgresql_server import frozen_server
from quartet.config import Recipe
from quartet.errors import InterruptedByUser
from quartet.ledger import Ledger
from quartet.report.audit import audit
from quartet.report.check import check_ledger
from tests.postgresql import Proxy, needs_postgresql, server_url

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900), needs_postgresql]


def test_a_run_outlasts_a_freeze_stops_in_one_and_ends_by_itself_in_a_long_one(
    tmp_path: Path, bandit_policy: Path
) -> None:
    with CrashRun(tmp_path, frozen_recipe(bandit_policy, server_url())) as run:
        run.start()
        run.until_trained()
        at_work = run.modules()
        run.freeze_server(FREEZE_SECONDS)
        run.until_trained(2)
        assert run.modules() == at_work, "no process was started again"
        log = (run.run_dir / "logs" / "supervisor.jsonl").read_text()
        assert "waiting for the database postgresql://" in log and "answers again" in log

        with frozen_server(server_url()):
            assert run.terminate() == InterruptedByUser.exit_code
            assert not everybody(run.run_dir)

        run.start()
        run.until_trained()
        run.outwait_patience()
        assert "cannot reach the ledger at postgresql://" in (tmp_path / "supervisor.stderr").read_text()
        run.finish()
    kept_promises(run)


def test_a_run_outlasts_a_partition_without_a_reset_and_stops_in_one(tmp_path: Path, bandit_policy: Path) -> None:
    with Proxy(server_url()) as network, CrashRun(tmp_path, frozen_recipe(bandit_policy, network.url)) as run:
        run.start()
        run.until_trained()
        with network.silence():
            time.sleep(FREEZE_SECONDS)
        run.until_trained(2)
        with network.silence():
            assert run.terminate() == InterruptedByUser.exit_code
            assert not everybody(run.run_dir)
        run.finish()
        kept_promises(run)


def frozen_recipe(policy: Path, url: str) -> Recipe:
    """The recipe of the crash campaign, for a machine on which a module may take minutes to start."""
    recipe = crash_recipe(policy, SETTINGS["sparse"], ledger_url=url)
    runtime = recipe.runtime.model_copy(update={"heartbeat_timeout_seconds": 240.0})
    return recipe.model_copy(update={"runtime": runtime})


def kept_promises(run: CrashRun) -> None:
    """Nothing is lost or trained twice, and the ledger is whole."""
    report = audit(run.run_dir)
    assert not report.findings
    assert (report.lost, report.trained_twice, report.over_lag, report.replay_identical) == (0, 0, 0, True)
    assert report.trained > report.train_steps > 0
    with closing(Ledger.open(run.run_dir)) as ledger:
        assert check_ledger(ledger).findings == []
