"""The ledger's file: missing, damaged, too new, full disk. Every error says which file and what to do."""

import subprocess
import sys

import pytest
from samples import trainable_group

from quartet.data.ledger import Ledger
from quartet.errors import LedgerError


def test_a_missing_ledger(tmp_path):
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger.open(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_newest_policy_is_served_once_the_engine_says_so(ledger):
    assert not ledger.latest_is_settled()
    ledger.mark_settled(ledger.latest_policy().version)
    assert ledger.latest_is_settled()
    ledger.mark_settled(ledger.latest_policy().version + 1)
    assert not ledger.latest_is_settled()


def test_a_second_run_in_the_same_folder_is_refused(ledger):
    with pytest.raises(LedgerError, match="--resume"):
        Ledger.create(ledger.run_dir)


def test_a_file_that_is_no_database(tmp_path):
    (tmp_path / "ledger.sqlite").write_bytes(b"not a database" * 1000)
    with pytest.raises(LedgerError, match="damaged") as error:
        Ledger.open(tmp_path)
    assert str(tmp_path / "ledger.sqlite") in str(error.value) and "->" in str(error.value)


def test_a_damaged_page(tmp_path):
    ledger = Ledger.create(tmp_path)
    ledger.register_initial_policy("p0")
    for _ in range(20):
        trainable_group(ledger)
    ledger.close()
    file = tmp_path / "ledger.sqlite"
    data = bytearray(file.read_bytes())
    data[8192:-4096:7] = b"\xff" * len(data[8192:-4096:7])
    file.write_bytes(data)
    with pytest.raises(LedgerError, match="damaged"):
        Ledger.open(tmp_path)


def test_a_newer_schema(ledger):
    ledger.set_value("schema_version", 99)
    with pytest.raises(LedgerError, match="newer"):
        Ledger.open(ledger.run_dir)


@pytest.mark.parametrize(("durability", "synchronous"), [("process", 1), ("full", 2)])
def test_durability_holds_for_every_opening(tmp_path, durability, synchronous):
    Ledger.create(tmp_path, durability=durability).close()
    ledger = Ledger.open(tmp_path)
    with ledger._database.read() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == synchronous
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    ledger.close()


FULL_DISK = """
import resource, sys
from pathlib import Path
from quartet.data.ledger import Ledger
from quartet.errors import SetupError

ledger = Ledger.open(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    for number in range(1000):
        ledger.event("filler", number=number, text="x" * 1000)
except SetupError as error:
    print(number, error)
"""


def test_a_full_disk_is_explained_and_what_was_committed_stays(ledger):
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(ledger.run_dir)], capture_output=True, text=True, check=True, timeout=60
    )
    number, _, message = done.stdout.partition(" ")
    assert "cannot write" in message and "--resume" in message
    ledger.close()
    reopened = Ledger.open(ledger.run_dir)
    assert len(reopened.events(2000)) == int(number)
    reopened.close()
