"""A run is looked at and stays what it was, in whatever state its files are."""

import hashlib
import shutil
import stat
from pathlib import Path

import pytest

from quartet.errors import LedgerError
from quartet.web.app import build_app
from quartet.web.pages import NAVIGATION
from tests.web.conftest import ask, make_run, record_steps


def fingerprint(folder: Path) -> str:
    """Names, contents, times and modes of everything in a folder."""
    digest = hashlib.sha256()
    for path in [folder, *sorted(folder.rglob("*"))]:
        facts = path.stat()
        digest.update(f"{path.relative_to(folder)} {facts.st_mtime_ns} {stat.filemode(facts.st_mode)}".encode())
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def finished(folder: Path) -> Path:
    make_run(folder / "run").close()
    record_steps(folder / "run")
    return folder / "run"


def copied_while_at_work(folder: Path) -> Path:
    """With the write-ahead log and its index, which nobody has open."""
    ledger = make_run(folder / "live")
    shutil.copytree(folder / "live", folder / "run", ignore=shutil.ignore_patterns("notifications"))
    ledger.close()
    return folder / "run"


def copied_without_the_index(folder: Path) -> Path:
    run_dir = copied_while_at_work(folder)
    (run_dir / "ledger.sqlite-shm").unlink()
    assert (run_dir / "ledger.sqlite-wal").stat().st_size > 0
    return run_dir


@pytest.mark.parametrize("state", [finished, copied_while_at_work, copied_without_the_index])
async def test_looking_changes_nothing(tmp_path, state):
    run_dir = state(tmp_path)
    for path in [*run_dir.rglob("*"), run_dir]:
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    before = fingerprint(run_dir)
    async with ask(build_app([run_dir])) as client:
        for page in [*NAVIGATION, "curves.json"]:
            answer = await client.get(f"/runs/run/{page}")
            assert answer.status_code == 200, answer.text
        assert "trainer" in (await client.get("/runs/run/now")).text
    assert fingerprint(run_dir) == before
    run_dir.chmod(0o755)


async def test_a_run_at_work_is_seen_as_it_goes_on(tmp_path):
    ledger = make_run(tmp_path / "run")
    files = {path.name for path in (tmp_path / "run").iterdir()}
    async with ask(build_app([tmp_path / "run"])) as client:
        ledger.event("module_died", module="first")
        assert "module first" in (await client.get("/runs/run/now")).text
        ledger.event("module_died", module="second")
        assert "module second" in (await client.get("/runs/run/now")).text
        assert {path.name for path in (tmp_path / "run").iterdir()} == files
        ledger.close()  # the last one that writes takes the log away
        assert "module second" in (await client.get("/runs/run/now")).text
        assert not (tmp_path / "run" / "ledger.sqlite-wal").exists()


def test_a_folder_without_a_run_is_an_error_that_says_so(tmp_path):
    with pytest.raises(LedgerError, match="no ledger at"):
        build_app([tmp_path])
