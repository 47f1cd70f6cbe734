"""Module processes, forked from a warm server or spawned: how they start, and that they end with the one that asked."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from benchmarks.bandit import bandit_recipe
from benchmarks.crashes.processes import command_line, everybody, has_ended
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.runtime.start_process import MODULE, Started, start_process
from tests.waiting import wait_until

METHODS = ("forkserver", "spawn")


@pytest.fixture
def run_dir(tmp_path) -> Path:
    """A run whose environment host can serve."""
    folder = tmp_path / "run"
    with closing(Ledger.create(folder)):
        (folder / "config.toml").write_text(to_toml(bandit_recipe(Path("unused"))))
    return folder


def start(run_dir: Path, method: str, module: str = "env") -> Started:
    return start_process("spawn" if method == "spawn" else "forkserver", module, run_dir, run_dir / "log", threads=1)


def is_serving(run_dir: Path) -> bool:
    with closing(Ledger.open(run_dir)) as ledger:
        return bool(ledger.modules.url("env"))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_module_serves_under_its_own_name_and_ends_at_sigterm(run_dir, method):
    process = start(run_dir, method)
    wait_until(lambda: is_serving(run_dir))
    words = command_line(psutil.Process(process.pid))
    assert words[words.index(MODULE) : words.index(MODULE) + 3] == [MODULE, "env", str(run_dir)]
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.terminate()
    assert process.wait(60) == process.poll() == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_exit_code_and_last_words_of_a_module_that_cannot_run(run_dir, method):
    (run_dir / "config.toml").unlink()
    assert start(run_dir, method).wait(60) == 2
    assert "config.toml is missing" in (run_dir / "log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_killed_module_has_the_negative_signal_as_exit_code(run_dir, method):
    process = start(run_dir, method)
    psutil.Process(process.pid).kill()
    assert process.wait(60) == -signal.SIGKILL


STARTS_ONE = """
import sys
from pathlib import Path
from quartet.runtime.start_process import start_process
start_process("forkserver", "env", Path(sys.argv[1]), Path(sys.argv[1]) / "log", threads=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "error"),
    [("import no_such_module", "No module named 'no_such_module'"), ("1 / 0", "ZeroDivisionError")],
)
def test_a_library_that_cannot_be_imported_is_reported_at_the_start(run_dir, tmp_path, code, error):
    (tmp_path / "transformers.py").write_text(code)  # the first library that the fork server imports
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", str(Path.cwd()))])
    command = [sys.executable, "-c", STARTS_ONE, str(run_dir)]
    ended = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    reported = ended.stderr.partition("SetupError: a module of Quartet cannot be imported")[2]
    assert (
        "Traceback" in reported and "transformers.py" in reported and error in reported and "quartet doctor" in reported
    )
    assert not (run_dir / "log").exists(), "nothing was started"


SCRIPT = """
import sys, time
from pathlib import Path
from quartet.runtime.start_process import start_process
run_dir = Path(sys.argv[1])
with (run_dir / "begun").open("a") as file:
    file.write("once\\n")
start_process(sys.argv[2], "env", run_dir, run_dir / "log", threads=1)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_module_ends_with_a_killed_script_which_needs_no_main_guard(run_dir, tmp_path, method):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with TemporaryDirectory() as temporary:
        command = [sys.executable, str(script), str(run_dir), method]
        supervisor = subprocess.Popen(command, env=os.environ | {"TMPDIR": temporary})
        wait_until(lambda: is_serving(run_dir))
        everyone = everybody(run_dir)
        assert len(everyone) == 2
        assert len(list(Path(temporary).glob("pymp-*"))) == (method == "forkserver"), "of the server's socket"
        supervisor.kill()
        supervisor.wait()
        wait_until(lambda: all(has_ended(process) for process in everyone))
        wait_until(lambda: not list(Path(temporary).glob("pymp-*")))
    assert (run_dir / "begun").read_text() == "once\n"


@pytest.mark.slow
def test_modules_end_with_a_killed_fork_server_and_the_next_one_starts_a_new_server(run_dir):
    process = start(run_dir, "forkserver")
    wait_until(lambda: is_serving(run_dir))
    server = psutil.Process(process.pid).ppid()
    psutil.Process(server).kill()
    assert process.wait(60) == 255  # no more is known of a child whose server is gone: a death, to the supervisor
    wait_until(lambda: not psutil.pid_exists(process.pid) or has_ended(psutil.Process(process.pid)))
    again = start(run_dir, "forkserver")
    assert psutil.Process(again.pid).ppid() != server
    again.terminate()
    assert again.wait(60) in (0, -signal.SIGTERM)


OWN_CHILD = """
import multiprocessing, sys, time
from pathlib import Path
from quartet.runtime.start_process import start_process

def write_late(file):
    while not file.with_name("started").exists():
        time.sleep(0.02)
    time.sleep(2)
    file.write_text("whole")

run_dir = Path(sys.argv[1])
multiprocessing.get_context("fork").Process(target=write_late, args=[run_dir / "own"]).start()
print(start_process("forkserver", "env", run_dir, run_dir / "log", threads=1).pid)
(run_dir / "started").touch()
"""


@pytest.mark.slow
def test_the_end_of_a_script_ends_its_modules_and_none_of_its_own_processes(run_dir, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(OWN_CHILD)
    ended = subprocess.run([sys.executable, str(script), str(run_dir)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    pid = int(ended.stdout)
    wait_until(lambda: not psutil.pid_exists(pid) or has_ended(psutil.Process(pid)))
    assert (run_dir / "own").read_text() == "whole"
