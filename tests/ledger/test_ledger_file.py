"""The ledger's file: missing, damaged, too new, full disk. Every error says which file and what to do."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from quartet.errors import LedgerError, SetupError
from quartet.ledger import Ledger
from quartet.ledger.blob_files import LocalBlobFiles
from quartet.report.totals import run_totals
from tests.full_disk import max_file_size
from tests.ledger.samples import on_sqlite, plan, trainable_group

VERSION_1 = Path(__file__).parent / "fixtures" / "ledger_v1.sql"


def test_a_missing_ledger(tmp_path):
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger.open(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_newest_policy_is_served_once_the_engine_says_so(ledger):
    assert not ledger.policies.latest_is_settled()
    ledger.policies.mark_settled(0, serving=0)
    assert ledger.policies.latest_is_settled()
    ledger.policies.mark_settled(1, serving=1)
    assert not ledger.policies.latest_is_settled()


def test_the_newest_policy_is_settled_once_all_engines_say_so(ledger):
    ledger.policies.expect_engines(["engine", "engine-2"])
    ledger.policies.mark_settled(0, serving=0)
    assert not ledger.policies.latest_is_settled()
    ledger.policies.mark_settled(0, serving=0, engine="engine-2")
    assert ledger.policies.latest_is_settled()
    ledger.policies.expect_engines(["engine"])  # the run was resumed with one
    ledger.policies.mark_settled(1, serving=0, engine="engine-2")
    assert ledger.policies.latest_is_settled()


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
    ledger.policies.register_initial("p0")
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


GONE = {"screenshots_blob": "NULL", "screenshots_bytes": "0"}
"""Columns that only older schemas have, with their values for a trajectory without pictures."""


def as_version_1(ledger: Ledger, run_dir: Path) -> None:
    """The same rows in the tables of schema version 1, as the Quartet of that time made them."""
    run_dir.mkdir()
    with closing(sqlite3.connect(run_dir / "ledger.sqlite")) as old:
        old.executescript(VERSION_1.read_text())
        old.execute("ATTACH ? AS new", (str(ledger.run_dir / "ledger.sqlite"),))
        for (table,) in old.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall():
            names = [column[1] for column in old.execute(f"PRAGMA main.table_info({table})")]
            values = ", ".join(GONE.get(name, f'"{name}"') for name in names)
            columns = ", ".join(f'"{name}"' for name in names)
            old.execute(f"INSERT INTO main.{table} ({columns}) SELECT {values} FROM new.{table}")
        old.execute("UPDATE run SET value = '1' WHERE key = 'schema_version'")
        blobs = old.execute("SELECT digest, data FROM new.blobs").fetchall()
        old.commit()
    for digest, data in blobs:  # every blob was a file
        LocalBlobFiles(run_dir / "blobs").put(digest.hex(), data)


def definitions(ledger: Ledger) -> dict[str, object]:
    """Columns of the tables; indexes and triggers word by word."""
    with closing(sqlite3.connect(ledger.run_dir / "ledger.sqlite")) as file:
        found: dict[str, object] = {}
        for kind, name, sql in file.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"):
            columns = {row[1:4] for row in file.execute(f'PRAGMA table_info("{name}")')}
            found[name] = columns if kind == "table" else " ".join(sql.split())
        return found


@on_sqlite
def test_an_older_ledger_is_upgraded_when_asked(ledger, tmp_path):
    trainable_group(ledger)
    trainable_group(ledger, family="right")
    ledger.groups.admit(plan("right"))
    as_version_1(ledger, tmp_path / "old")
    with pytest.raises(LedgerError, match="quartet ledger upgrade"):  # a run of the older Quartet may be at work on it
        Ledger.open(tmp_path / "old")
    upgraded = Ledger.open(tmp_path / "old", upgrade=True)
    assert upgraded.statistics.families(32) == ledger.statistics.families(32)
    assert upgraded.statistics.families(32)["right"].outcomes[0].successes == 1
    assert run_totals(upgraded) == run_totals(ledger)
    assert upgraded.events()[0].kind == "ledger_upgraded"
    assert definitions(upgraded) == definitions(ledger)
    upgraded.close()
    Ledger.open(tmp_path / "old").close()


@pytest.mark.parametrize(("durability", "synchronous"), [("process", 1), ("full", 2)])
def test_durability_holds_for_every_opening(tmp_path, durability, synchronous):
    Ledger.create(tmp_path, durability=durability).close()
    ledger = Ledger.open(tmp_path)
    with ledger.read() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == synchronous
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    ledger.close()


@on_sqlite
def test_a_full_disk_is_explained_and_what_was_committed_stays(ledger):
    written, largest = 0, max(file.stat().st_size for file in ledger.run_dir.glob("ledger.sqlite*"))
    with max_file_size(largest + 100_000), pytest.raises(SetupError, match=r"cannot write(.|\n)*--resume"):
        while True:
            ledger.event("filler", number=written, text="x" * 1000)
            written += 1
    ledger.close()
    reopened = Ledger.open(ledger.run_dir)
    assert len(reopened.events(2000)) == written > 0
    reopened.close()


def test_a_database_that_may_not_be_written_is_explained(tmp_path):
    with (
        closing(Ledger.create(tmp_path)) as ledger,
        pytest.raises(SetupError, match="no permission to write"),
        ledger.db.write() as connection,
    ):
        connection.exec_driver_sql("PRAGMA query_only = ON")  # SQLite then answers as for such a file
        connection.exec_driver_sql("DELETE FROM run")
