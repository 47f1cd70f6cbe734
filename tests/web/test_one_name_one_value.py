"""Equal names show equal values: in the status, on the pages, in the summary and in the comparison."""

import re
from pathlib import Path

import pytest

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.recipe.file import read_resolved
from quartet.report import labels
from quartet.report.comparison.groups import group_runs, rows
from quartet.report.comparison.results import read_result
from quartet.report.status import StatusReader
from quartet.report.summary import build_summary
from quartet.report.totals import run_totals
from quartet.report.training_rollouts import TrainingRollouts
from quartet.types import Purpose
from quartet.web.app import build_app
from tests.web.conftest import ask
from tests.web.recorded import Recorder, record, trajectory


@pytest.fixture
def ledger(tmp_path):
    ledger = record(tmp_path / "run")
    yield ledger
    ledger.close()


def recipe_of(ledger: Ledger) -> Recipe:
    return read_resolved(ledger.run_dir / "config.toml")


async def numbers(run_dir: Path, page: str) -> dict[str, str]:
    """The numbers of a page that stand under a name, without what follows the value."""
    async with ask(build_app([run_dir])) as client:
        html = (await client.get(f"/runs/run/{page}")).text
    return {name: value.split()[0] for name, value in re.findall(r"<dt>([^<]*)</dt>\s*<dd[^>]*>\s*([^<]*)", html)}


async def test_training_rollouts_are_the_same_everywhere(ledger):
    summary = build_summary(recipe_of(ledger), ledger, wall_seconds=1.0, control=None)
    status = StatusReader(ledger.run_dir, ledger).read()
    (group,) = group_runs([read_result(ledger.run_dir)])
    (row,) = (row for row in rows(0.5) if row.label == labels.TRAINING_ROLLOUTS)
    shown = await numbers(ledger.run_dir, "run")
    assert summary["rollouts_finished"] == status.training_rollouts == 9
    assert row.value(group.runs[0]) == 9 and shown[labels.TRAINING_ROLLOUTS] == "9"
    assert status.trajectories_stored == 11, "one was tried twice, one evaluated: another name, another number"


async def test_success_and_lag_are_those_of_their_window(ledger):
    status = StatusReader(ledger.run_dir, ledger).read()
    run, now = await numbers(ledger.run_dir, "run"), await numbers(ledger.run_dir, "now")
    assert status.success_recent == pytest.approx(5 / 9) and run[labels.RECENT_SUCCESS] == "56"
    assert status.mean_lag == 0.0 and run[labels.RECENT_LAG] == now[labels.RECENT_LAG] == "0.00"


async def test_held_out_success_is_that_of_the_summary(tmp_path):
    ledger = (run := Recorder(tmp_path / "run")).ledger
    run.group("left", [1.0, 0.0, 1.0, 1.0], purpose=Purpose.EVAL)
    summary = build_summary(recipe_of(ledger), ledger, wall_seconds=1.0, control=None)
    (row,) = (row for row in rows(0.5) if row.label == f"{labels.HELD_OUT}, before, %")
    assert summary["success_before"] == row.value(read_result(ledger.run_dir)) == 0.75
    assert (await numbers(ledger.run_dir, "run"))[f"{labels.HELD_OUT}, before"] == "75"
    ledger.close()


def test_a_counter_goes_on_from_its_last_count(ledger):
    counter = TrainingRollouts(ledger)
    assert counter.count() == counter.count() == 9
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    ledger.trajectories.append(lease, trajectory(lease.task, 1.0), 3)
    assert counter.count() == TrainingRollouts(ledger).count() == run_totals(ledger).train_rollouts == 10
