"""Run directories: made once, locked, resumed under the same recipe."""

import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from quartet.cli import main
from quartet.cli.stop import command
from quartet.errors import ConfigError, SetupError
from quartet.files import lock
from quartet.files.lock import Holder, ProcessLock, holder
from quartet.ledger import Ledger
from quartet.recipe.file import parse_recipe
from quartet.run import run_dir
from quartet.run.run_dir import RunLock, prepare, supervisor
from quartet.run.run_files import foreign_names

RECIPE = parse_recipe({"name": "x", "model": {"path": "m"}, "env": {"name": "bandit"}}, "test")


def test_a_run_is_not_overwritten_by_accident(tmp_path):
    run = tmp_path / "run"
    prepare(RECIPE, run, resume=False)
    (run / "ledger.sqlite").write_text("precious")
    with pytest.raises(ConfigError, match="already holds a run"):
        prepare(RECIPE, run, resume=False)
    assert (run / "ledger.sqlite").read_text() == "precious"
    prepare(RECIPE, run, resume=True)
    prepare(RECIPE, run, resume=False, fresh=True)
    assert not (run / "ledger.sqlite").exists()


@pytest.mark.parametrize("resume", [False, True])
def test_run_that_lost_its_recipe_is_neither_resumed_nor_taken_over(tmp_path, resume):
    run = tmp_path / "run"
    Ledger.create(run).close()
    with pytest.raises(ConfigError, match=r"config\.toml is missing") as caught:
        prepare(RECIPE, run, resume=resume)
    assert "--fresh" in caught.value.advice
    assert not (run / "config.toml").exists()
    prepare(RECIPE, run, resume=False, fresh=True)


def test_a_fresh_start_deletes_what_the_run_wrote_and_nothing_else(tmp_path):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    prepare(RECIPE, run, resume=False)
    for folder in (run / "policies", run / "thesis", elsewhere):
        folder.mkdir()
        (folder / "file").write_text("text")
    (run / "blobs").symlink_to(elsewhere)
    (run / "notes.txt").write_text("precious")
    assert foreign_names(run) == ["notes.txt", "thesis"]
    prepare(RECIPE, run, resume=False, fresh=True)
    assert sorted(entry.name for entry in run.iterdir()) == ["config.toml", "notes.txt", "supervisor.pid", "thesis"]
    assert (run / "thesis" / "file").exists() and (elsewhere / "file").exists()


@pytest.mark.parametrize("durability", ["process", "full"])
def test_with_full_durability_the_recipe_and_its_folders_are_synced(tmp_path, durability, monkeypatch):
    synced, fsync = [], os.fsync

    def recording(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", recording)
    run, ledger = tmp_path / "run", RECIPE.ledger.model_copy(update={"durability": durability})
    prepare(RECIPE.model_copy(update={"ledger": ledger}), run, resume=False)
    assert synced == ([run / "config.toml.writing", run, tmp_path] if durability == "full" else [])


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", ["thesis.tex", "config.toml", "logs", "policies"])
def test_folder_without_a_run_is_not_modified(tmp_path, fresh, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(ConfigError, match="is not a run and" if name != "config.toml" or fresh else "holds a run"):
        prepare(RECIPE, tmp_path, resume=False, fresh=fresh)
    assert [entry.name for entry in tmp_path.iterdir()] == [name] and (tmp_path / name).read_text() == "precious"


def test_a_place_where_no_folder_can_be_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "run", Path("/proc/run")):
        with pytest.raises(ConfigError, match=r"name another (path|folder)"):
            prepare(RECIPE, place, resume=False, fresh=True)


def test_resume_needs_a_run_and_the_same_recipe(tmp_path):
    with pytest.raises(ConfigError, match="nothing to resume"):
        prepare(RECIPE, tmp_path / "run", resume=True)
    prepare(RECIPE, tmp_path / "run", resume=False)
    with pytest.raises(ConfigError, match="cannot change seed"):
        prepare(RECIPE.model_copy(update={"seed": 3}), tmp_path / "run", resume=True)


def test_one_supervisor_per_run(tmp_path):
    assert supervisor(tmp_path) is None
    with RunLock(tmp_path):
        assert supervisor(tmp_path) == Holder.this_process()
        with pytest.raises(SetupError, match=f"in use by process {os.getpid()}"), RunLock(tmp_path):
            pass
    assert supervisor(tmp_path) is None


@pytest.mark.slow
def test_a_killed_supervisor_leaves_no_lock(tmp_path):
    program = (
        "import os, signal, sys; from pathlib import Path; from quartet.run.run_dir import RunLock\n"
        "with RunLock(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert (tmp_path / "supervisor.pid").read_text() != ""
    assert supervisor(tmp_path) is None
    with RunLock(tmp_path):
        pass


def test_a_lock_that_is_just_released_has_no_holder(tmp_path, monkeypatch):
    path, flock = tmp_path / "run.lock", fcntl.flock

    def emptied_meanwhile(descriptor: int, operation: int) -> None:
        path.write_text("")
        flock(descriptor, operation)

    with ProcessLock(path, lambda process: SetupError(process)):
        assert holder(path) == Holder.this_process()
        monkeypatch.setattr(fcntl, "flock", emptied_meanwhile)
        assert holder(path) is None


@pytest.mark.parametrize(("error", "exit_code"), [(ProcessLookupError, 0), (PermissionError, SetupError.exit_code)])
def test_stop_of_a_supervisor_that_ended_or_belongs_to_another_user(tmp_path, monkeypatch, error, exit_code):
    run = tmp_path / "run"
    Ledger.create(run).close()
    found = iter([Holder(1), None])
    monkeypatch.setattr(run_dir, "supervisor", lambda _: next(found))
    monkeypatch.setattr(os, "kill", lambda pid, signal: raised(error))
    monkeypatch.setattr(sys, "argv", ["quartet", "stop", str(run)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == exit_code


@pytest.mark.parametrize("differs", ["machine", "boot", "namespace"])
def test_stop_signals_no_process_of_another_machine_or_container(tmp_path, monkeypatch, differs):
    run, signalled = tmp_path / "run", []
    Ledger.create(run).close()
    with monkeypatch.context() as elsewhere:
        if differs == "machine":
            elsewhere.setattr(socket, "gethostname", lambda: "node-2")
        if differs in ("machine", "boot"):
            (tmp_path / "boot_id").write_text("another\n")
            elsewhere.setattr(lock, "BOOT_ID", tmp_path / "boot_id")
        else:
            elsewhere.setattr(lock, "PID_NAMESPACE", tmp_path)
        running = RunLock(run)
        running.__enter__()
    monkeypatch.setattr(os, "kill", lambda pid, signal: signalled.append(pid))
    stopped = CliRunner().invoke(command, [str(run)])
    host = "node-2" if differs == "machine" else socket.gethostname()
    assert isinstance(stopped.exception, SetupError)
    assert f"run `quartet stop` where that process runs, on {host}" in str(stopped.exception)
    with pytest.raises(SetupError, match=f"in use by process {os.getpid()} on .*{host}"), RunLock(run):
        pass
    assert signalled == []
    running.__exit__()


def test_a_lock_with_an_id_alone_is_read(tmp_path):
    path = tmp_path / "run.lock"
    with ProcessLock(path, lambda process: SetupError(process)):
        path.write_text("4711")  # as Quartet 0.1.0 wrote it
        assert holder(path) == Holder(4711)
        assert Holder(4711).is_here


def raised(error: type[Exception]) -> None:
    raise error


def test_a_holder_is_known_by_its_boot_and_container_not_by_a_name_that_may_change():
    here = Holder.this_process()
    assert here.boot and here.namespace
    assert here._replace(host="renamed").is_here
    assert not here._replace(namespace="0").is_here and not here._replace(boot="0").is_here
    assert not here._replace(host="elsewhere", boot="", namespace="").is_here
