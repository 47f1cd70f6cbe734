"""Run directories: made once, locked, resumed under the same recipe."""

import os
import subprocess
import sys

import pytest

from quartet.errors import ConfigError, SetupError
from quartet.recipe_file import parse_recipe
from quartet.runtime.run_dir import RunLock, prepare, supervisor_pid

RECIPE = parse_recipe({"name": "x", "model": {"path": "m"}, "env": {"name": "bandit"}}, "test")


def test_a_run_is_not_overwritten_by_accident(tmp_path):
    run = tmp_path / "run"
    prepare(RECIPE, run, resume=False)
    (run / "ledger.sqlite").write_text("precious")
    with pytest.raises(ConfigError, match="holds a run already"):
        prepare(RECIPE, run, resume=False)
    assert (run / "ledger.sqlite").read_text() == "precious"
    prepare(RECIPE, run, resume=True)
    prepare(RECIPE, run, resume=False, fresh=True)
    assert not (run / "ledger.sqlite").exists()


def test_resume_needs_a_run_and_the_same_recipe(tmp_path):
    with pytest.raises(ConfigError, match="nothing to resume"):
        prepare(RECIPE, tmp_path / "run", resume=True)
    prepare(RECIPE, tmp_path / "run", resume=False)
    with pytest.raises(ConfigError, match="cannot change seed"):
        prepare(RECIPE.model_copy(update={"seed": 3}), tmp_path / "run", resume=True)


def test_one_supervisor_per_run(tmp_path):
    assert supervisor_pid(tmp_path) is None
    with RunLock(tmp_path):
        assert supervisor_pid(tmp_path) == os.getpid()
        with pytest.raises(SetupError, match=f"in use by process {os.getpid()}"), RunLock(tmp_path):
            pass
    assert supervisor_pid(tmp_path) is None


def test_a_killed_supervisor_leaves_no_lock(tmp_path):
    program = (
        "import os, signal, sys; from pathlib import Path; from quartet.runtime.run_dir import RunLock\n"
        "with RunLock(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert (tmp_path / "supervisor.pid").read_text() != ""
    assert supervisor_pid(tmp_path) is None
    with RunLock(tmp_path):
        pass
