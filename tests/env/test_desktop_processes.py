"""Processes of a desktop and their keeper, without a desktop: what is left when the keeper is killed or stopped."""

import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from quartet.env.desktop import processes
from quartet.env.desktop.processes import Processes
from quartet.errors import EnvError

ENV = {"PATH": "/usr/bin:/bin"}


def wait_for_end(pid: int) -> None:
    with suppress(OSError):
        while ") Z" not in Path(f"/proc/{pid}/stat").read_text():
            time.sleep(0.01)


def test_a_program_is_started_and_ended_with_the_keeper() -> None:
    started = Processes()
    pid, line = started.start(["sh", "-c", "sleep 1000 & echo ready; wait"], ENV, reads_line=True)
    assert line == "ready"
    tree = started.tree(pid)
    assert len(tree) == 2
    assert started.activity(without=set())[1].keys() == tree and not started.activity(without=tree)[1]
    with pytest.raises(EnvError, match="cannot start no-such-program: No such file"):
        started.start(["no-such-program"], ENV)
    started.close()
    started.close()
    assert not started.folder.exists()
    for each in tree:
        wait_for_end(each)


def test_a_keeper_that_cannot_be_started_leaves_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(EnvError, match=r"(?s)cannot start the process that supervises.*No such file.*env\.sessions"):
        Processes()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_keeper_that_is_killed_or_stopped_leaves_nothing(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(processes, "END_TIMEOUT_SECONDS", 0.1)
    others = set(psutil.Process().children())
    started = Processes()
    (keeper,) = set(psutil.Process().children()) - others
    pid, _ = started.start(["sh", "-c", "echo ready; exec sleep 1000"], ENV, reads_line=True)
    monkeypatch.setattr(processes, "ANSWER_TIMEOUT_SECONDS", 0.1)
    keeper.send_signal(number)
    with pytest.raises(EnvError, match=r"the process that supervises the desktop's programs|it was killed"):
        started.start(["true"], ENV)
    started.close()
    wait_for_end(pid)
    assert not started.folder.exists()


def test_a_program_in_the_background_ends_although_the_keeper_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "END_TIMEOUT_SECONDS", 0.1)
    others = set(psutil.Process().children())
    started = Processes()
    (keeper,) = set(psutil.Process().children()) - others
    _, line = started.start(["sh", "-c", "sleep 1000 > /dev/null & echo $!"], ENV, reads_line=True)
    keeper.suspend()
    started.close()
    wait_for_end(int(line))


def test_a_fork_bomb_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MAX_PROCESSES", 3)
    started = Processes()
    try:
        started.start(["sh", "-c", "for n in 1 2 3 4; do sleep 1000 & done; echo ready; wait"], ENV, reads_line=True)
        with pytest.raises(EnvError, match="more than 3 processes"):
            started.activity(without=set())
    finally:
        started.close()
