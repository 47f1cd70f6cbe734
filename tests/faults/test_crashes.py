"""Runs that are killed and go on: nothing is lost, nothing trained twice, nothing too old, and every bit is explained.

`python -m benchmarks.crash` is the same with hundreds of kills and every crash point.
"""

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.crashes.campaign import ALL_AT_WORK, BEGINNING, ENDING, LARGE, LATE, Campaign, both
from benchmarks.crashes.crash_run import CrashRun, patience
from benchmarks.crashes.processes import everybody
from benchmarks.crashes.recipe import SETTINGS, crash_recipe
from quartet.cli import cli
from quartet.config import Recipe, Straggler
from quartet.crash_points import NAMES
from quartet.errors import InterruptedByUser, LedgerUnreachableError
from quartet.ledger import Ledger
from quartet.report.audit import AuditReport, audit
from quartet.report.check import check_ledger
from quartet.report.totals import run_totals
from tests.postgresql import needs_postgresql, server_url


def test_the_campaign_knows_every_point() -> None:
    assert {*ALL_AT_WORK, *both(*BEGINNING, *LARGE, *LATE, *ENDING)} == set(NAMES)


def kept_promises(run: CrashRun) -> AuditReport:
    """The audit of a run that trained something, and in which nothing is wrong."""
    report = audit(run.run_dir)
    assert not report.findings
    assert (report.lost, report.trained_twice, report.over_lag, report.replay_identical) == (0, 0, 0, True)
    assert report.trained > report.train_steps > 0
    return report


@pytest.mark.campaign
def test_a_run_that_is_killed_and_stopped_keeps_its_promises(tmp_path: Path, bandit_policy: Path) -> None:
    with CrashRun(tmp_path, crash_recipe(bandit_policy, SETTINGS["sparse"])) as run:
        campaign = Campaign(run, seed=0)
        campaign.begin()
        campaign.attack(both("trajectories.append", "batches.commit", "weights"))
        campaign.late_worker()
        campaign.late_trainer("committing.after")
        run.kill_everybody()
        run.finish()
        assert run.kills >= 14
    assert kept_promises(run).superseded >= 1  # what the late worker appended
    ledger = Ledger.open(run.run_dir)
    assert "batch_superseded" in [event.kind for event in ledger.events(10_000)]  # what the late trainer committed
    ledger.close()


@pytest.mark.campaign
def test_sparse_checkpoints_two_engines_and_one_policy_leave_a_way_back(tmp_path: Path, bandit_policy: Path) -> None:
    with CrashRun(tmp_path, crash_recipe(bandit_policy, SETTINGS["few"])) as run:
        campaign = Campaign(run, seed=2)
        run.start()
        campaign.attack(both("policies.mark_deleted", "batches.roll_back", "state_copy", "checkpoint"))
        run.kill_everybody()
        run.finish()
        assert run.kills >= 6
    kept_promises(run)
    ledger = Ledger.open(run.run_dir)
    assert "rolled_back" in [event.kind for event in ledger.events(10_000)]
    assert check_ledger(ledger).findings == []
    ledger.close()


@pytest.mark.campaign
def test_a_worker_may_die_while_a_recalled_rollout_goes_back_to_the_queue(tmp_path: Path, bandit_policy: Path) -> None:
    """Before the transaction the rollout is still leased and begins again, after it the next attempt goes on with what
    there is: either way every token is trained once, with the version that sampled it."""
    with CrashRun(tmp_path, recalling(crash_recipe(bandit_policy, SETTINGS["dense"]))) as run:
        run.start()
        for point in both("trajectories.recycle"):
            run.until_trained()
            assert run.hit(point, patience()), f"nobody came by {point}"
        run.until_trained(2)
        run.finish()
    kept_promises(run)
    ledger = Ledger.open(run.run_dir)
    assert run_totals(ledger).attempts["partial"] >= 1
    assert check_ledger(ledger).findings == []
    ledger.close()


def recalling(recipe: Recipe) -> Recipe:
    """The same run with partial rollouts: when a batch is full, what still runs is recalled and recycled."""
    admission = recipe.admission.model_copy(update={"schedule": "batch_synchronous"})
    straggler = Straggler(name="april")
    return recipe.model_copy(update={"admission": admission, "straggler": straggler})


@pytest.mark.campaign
@needs_postgresql
def test_on_postgresql_the_server_may_end_connections_and_die(tmp_path: Path, bandit_policy: Path) -> None:
    """Whoever loses its connection ends with a clear error and is started again; the supervisor outlasts it."""
    recipe = crash_recipe(bandit_policy, SETTINGS["sparse"], ledger_url=server_url())
    with CrashRun(tmp_path, recipe) as run:
        campaign = Campaign(run, seed=1)
        run.start()
        campaign.lost_connections()
        campaign.attack(both("trajectories.append", "batches.commit"))
        run.kill_everybody()
        run.finish()
        assert run.kills >= 11
    kept_promises(run)
    ledger = Ledger.open(run.run_dir)
    deaths = [event.fields for event in ledger.events(10_000) if event.kind == "module_died"]
    ledger.close()
    unreachable = {death["module"] for death in deaths if death["code"] == LedgerUnreachableError.exit_code}
    assert unreachable == set(run.module_names)


@pytest.mark.campaign
def test_two_policies_whose_trainers_are_killed_and_whose_run_is_stopped(tmp_path: Path, bandit_policy: Path) -> None:
    """Each policy keeps its promises for itself, and the first one's evaluations go on."""
    recipe = crash_recipe(bandit_policy, SETTINGS["two_policies"])
    with CrashRun(tmp_path, recipe) as run:
        run.start()
        for point in ("committing.after", "batches.commit.after"):
            run.until_trained()
            assert run.hit(point, patience()), f"no trainer came by {point}"
        run.until_trained()
        run.until(lambda: run.kill("trainer-odd"), what="trainer-odd to be killed")
        run.until_trained(2)
        stopped = CliRunner().invoke(cli, ["stop", str(run.run_dir)])
        assert (stopped.exit_code, run.exit_code(), everybody(run.run_dir)) == (0, InterruptedByUser.exit_code, [])
        run.finish()
    kept_promises(run)
    ledger = Ledger.open(run.run_dir)
    trained = [one.batches.train_step() for one in ledger.each()]
    assert ledger.trained == ("even", "odd") and trained[0] == trained[1] >= 5
    assert [check_ledger(one, max_lag=recipe.admission.max_lag).findings for one in ledger.each()] == [[], []]
    evaluations = ledger.evaluations.admitted()
    ended = evaluations.keys() - ledger.evaluations.running().keys()
    assert ended and all(ledger.evaluations.results(tag)["pennies"].asked == 2 for tag in ended)
    ledger.close()
