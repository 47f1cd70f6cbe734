"""`quartet ledger check`: what it finds, and that it finds nothing in a sound ledger."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from click.testing import CliRunner
from samples import trainable_group
from test_ledger_file import as_version_1

from quartet.cli import cli
from quartet.data.ledger import Ledger
from quartet.errors import LedgerError, SetupError
from quartet.runtime.run import _forget_stop


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["ledger", *arguments])
    return done.exit_code, done.output


def kinds(ledger: Ledger) -> list[str]:
    return sorted(finding.kind for finding in ledger.check().findings)


def test_a_sound_ledger(ledger):
    for _ in range(3):
        trainable_group(ledger, screenshot=b"png")
    batch = ledger.claim_batch("t", 2, 1, "mask", 60)
    assert batch is not None
    ledger.commit_batch(batch, "policies/v000001", {})
    assert run("check", str(ledger.run_dir)) == (0, "6 trajectories, 3 blobs, 0 findings\n")


def test_damaged_and_missing_blobs_are_named(ledger):
    trainable_group(ledger)
    damaged, missing = sorted((ledger.run_dir / "blobs").rglob("*.zst"))
    damaged.write_bytes(damaged.read_bytes()[:-3])
    missing.unlink()
    code, output = run("check", str(ledger.run_dir), "--json")
    findings = json.loads(output)["findings"]
    assert code == 1
    assert {finding["kind"] for finding in findings} == {"blob_damaged"}
    assert all(any(str(path) in finding["what"] for finding in findings) for path in (damaged, missing))


def test_what_nobody_but_a_stranger_could_write(ledger):
    group_id = trainable_group(ledger)
    with closing(sqlite3.connect(ledger.run_dir / "ledger.sqlite")) as file:
        file.execute("DROP TRIGGER groups_guard")
        file.execute("UPDATE groups SET state = 'trained' WHERE id = ?", (group_id,))
        file.commit()
    assert kinds(ledger) == ["lost"]
    with closing(sqlite3.connect(ledger.run_dir / "ledger.sqlite")) as file:
        file.execute("UPDATE groups SET state = 'traind' WHERE id = ?", (group_id,))
        file.commit()
    assert kinds(ledger) == ["unknown_state"]


def test_upgrade(ledger, tmp_path):
    trainable_group(ledger)
    as_version_1(ledger, tmp_path / "old")
    assert isinstance(CliRunner().invoke(cli, ["ledger", "check", str(tmp_path / "old")]).exception, LedgerError)
    assert run("upgrade", str(tmp_path / "old"))[0] == 0
    assert run("upgrade", str(tmp_path / "old"))[0] == 0  # nothing left to do
    (ledger.run_dir / "blobs").rename(tmp_path / "old" / "blobs")
    assert run("check", str(tmp_path / "old"))[0] == 0


HOLD = """
import sys
from pathlib import Path
from quartet.runtime.run_dir import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_nobody_upgrades_a_ledger_that_an_older_quartet_works_on(ledger, tmp_path):
    old = tmp_path / "old"
    as_version_1(ledger, old)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(old)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None and holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    for refused in (
        lambda: CliRunner().invoke(cli, ["ledger", "upgrade", str(old)], catch_exceptions=False),
        lambda: _forget_stop(old),  # what a resume does first
    ):
        with pytest.raises(SetupError, match="in use"):
            refused()
    with pytest.raises(LedgerError, match="schema version 1"):
        Ledger.open(old)
    holder.communicate("")
    _forget_stop(old)
    assert run("check", str(old))[0] == 0


def test_a_blob_that_cannot_be_read_is_a_finding(ledger):
    trainable_group(ledger)
    path = next((ledger.run_dir / "blobs").rglob("*.zst"))
    path.unlink()
    path.mkdir()
    (finding,) = ledger.check().findings
    assert finding.kind == "blob_damaged" and "cannot be read" in finding.what
