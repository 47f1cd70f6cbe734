"""What grows and is not wanted: the write-ahead log under readers that never pause, and blobs nobody refers to."""

import os
import sqlite3
import threading
from contextlib import closing

import pytest
from click.testing import CliRunner

from quartet.cli import cli
from quartet.errors import LedgerError, SetupError
from quartet.ledger.database import sqlite
from quartet.ledger.database.file_system import refuse_network_file_system
from quartet.report.check import check_ledger
from quartet.run.run_dir import RunLock
from tests.ledger.samples import finish, on_sqlite, plan, trainable_group

MOUNTS = """/dev/vda / ext4 rw 0 0
server:/export /shared nfs4 rw 0 0
/dev/vdb /shared/fast xfs rw 0 0
server:/two /with\\040space cifs rw 0 0
"""


@pytest.mark.parametrize("folder", ["/home/me/runs", "/shared/fast/runs", "/sharedness"])
def test_local_folders(tmp_path, folder):
    assert refuse_network_file_system(type(tmp_path)(folder), MOUNTS) is None


@pytest.mark.parametrize("folder", ["/shared", "/shared/runs/demo", "/with space/runs"])
def test_network_file_systems_are_refused(tmp_path, folder):
    with pytest.raises(SetupError, match="network file system") as error:
        refuse_network_file_system(type(tmp_path)(folder), MOUNTS)
    assert "ledger.url" in str(error.value)


def write(ledger, megabytes: int) -> None:
    for _ in range(megabytes * 4):
        ledger.event("filler", text="x" * 250_000)


@on_sqlite
def test_the_log_stays_bounded_under_readers_that_never_pause(ledger, monkeypatch):
    """Two readers overlap, so at every moment somebody reads from the log: SQLite alone would let it grow for ever."""
    monkeypatch.setattr(sqlite, "WAL_PAGES", 250)
    path, done = ledger.run_dir / "ledger.sqlite", threading.Event()
    log = path.with_name("ledger.sqlite-wal")
    barrier = threading.Barrier(2)

    def read() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            while not done.is_set():
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM events").fetchone()
                try:
                    barrier.wait(5)  # the other one is in its transaction now
                except threading.BrokenBarrierError:
                    return
                reader.execute("COMMIT")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    sizes = []
    for _ in range(6):
        write(ledger, 2)
        while not ledger.db.database.shorten_log():
            pass
        sizes.append(log.stat().st_size)
    done.set()
    barrier.abort()
    for reader in readers:
        reader.join()
    assert max(sizes) < 8_000_000, "twelve megabytes were written"


@on_sqlite
def test_a_reader_that_holds_the_log_is_told_of(ledger, monkeypatch):
    monkeypatch.setattr(sqlite, "WAL_PAGES", 1)
    with closing(sqlite3.connect(ledger.run_dir / "ledger.sqlite", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        write(ledger, 1)
        assert not ledger.disk.shorten_log()
        assert ledger.events(1)[0].kind == "log_held"
        reader.execute("COMMIT")
    assert ledger.disk.shorten_log()


def test_only_what_nothing_refers_to_is_deleted(ledger):
    kept = trainable_group(ledger, screenshot=os.urandom(200_000))
    ledger.groups.admit(plan(rollouts=1))
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    finish(ledger, lease, screenshot=os.urandom(1000))
    large = ledger.store.blobs.pack(os.urandom(200_000))  # as a worker leaves it that dies before its commit
    small = ledger.store.blobs.pack(b"nobody's")
    with ledger.db.write() as connection:
        ledger.store.blobs.write(connection, small)
    result = CliRunner().invoke(cli, ["ledger", "gc", str(ledger.run_dir)])
    assert (result.exit_code, result.output) == (0, "2 blobs deleted\n")
    assert check_ledger(ledger).findings == []
    assert len(ledger.groups.load(kept).members) == 2
    assert large.digest not in set(ledger.store.blobs.files.digests())
    assert ledger.disk.collect_garbage() == 0


def test_not_while_the_run_is_at_work(ledger):
    with RunLock(ledger.run_dir):
        assert isinstance(CliRunner().invoke(cli, ["ledger", "gc", str(ledger.run_dir)]).exception, SetupError)


def test_no_lock_file_is_left_in_a_folder_without_a_ledger(tmp_path):
    (tmp_path / "config.toml").write_text("of = 'another program'\n")
    result = CliRunner().invoke(cli, ["ledger", "gc", str(tmp_path)])
    assert isinstance(result.exception, LedgerError)
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.toml"], "`--fresh` would delete a run's files"


@on_sqlite
@pytest.mark.parametrize("command", ["gc", "upgrade"])
def test_upkeep_reads_every_page_of_the_ledger_once(ledger, monkeypatch, command):
    checks, check = [], sqlite.SqliteDatabase.check
    monkeypatch.setattr(
        sqlite.SqliteDatabase, "check", lambda database: (checks.append(database.path), check(database))
    )
    assert CliRunner().invoke(cli, ["ledger", command, str(ledger.run_dir)]).exit_code == 0
    assert checks == [ledger.run_dir / "ledger.sqlite"]
