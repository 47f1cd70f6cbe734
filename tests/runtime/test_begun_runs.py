"""A start that was killed before the run was complete is gone on with, whatever it left."""

from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.errors import LedgerError
from quartet.ledger import Ledger
from quartet.ledger.database import create_database
from quartet.runtime.session import open_or_create


def no_bytes(run_dir: Path) -> None:
    (run_dir / "ledger.sqlite").touch()


def no_tables(run_dir: Path) -> None:
    database = create_database(run_dir, "process", "")
    with database.write():
        pass
    database.close()


def no_policy(run_dir: Path) -> None:
    Ledger.create(run_dir).close()


@pytest.mark.parametrize("left", [no_bytes, no_tables, no_policy])
def test_a_run_that_was_killed_at_its_very_start_begins_anew(tmp_path: Path, left) -> None:
    left(tmp_path)
    for _ in range(2):
        ledger = open_or_create(bandit_recipe(Path("policy")), tmp_path)
        assert [policy.version for policy in ledger.policies.live()] == [0]
        ledger.close()


@pytest.mark.parametrize("folder", ["policies/v000001_batch_000001", "trainer/player/step_000010_batch_000010"])
@pytest.mark.parametrize("left", [None, no_bytes, no_tables])
def test_a_ledger_that_was_lost_is_not_replaced_by_a_new_one(tmp_path: Path, left, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    if left:
        left(tmp_path)
    with pytest.raises(LedgerError, match="its ledger is missing or empty"):
        open_or_create(bandit_recipe(Path("policy")), tmp_path)
    assert not Ledger.exists(tmp_path)


def test_a_damaged_ledger_is_not_taken_for_one_that_was_only_begun(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(LedgerError, match="damaged"):
        open_or_create(bandit_recipe(Path("policy")), tmp_path)
    assert (tmp_path / "ledger.sqlite").read_bytes().startswith(b"no database")
