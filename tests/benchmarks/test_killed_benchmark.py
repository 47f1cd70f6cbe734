"""A benchmark that is killed leaves no process of its run behind."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from quartet.recipe.file import to_toml
from tests.live_runs import TIMEOUT_SECONDS, slow_learner, wait_for

WATCHED = """
import sys
from pathlib import Path
from benchmarks.watched_run import train
train(sys.argv[1], Path(sys.argv[2]), look=lambda ledger: None, poll_seconds=0.1)
"""
STORED = """
import sys
from pathlib import Path
from benchmarks.runs.__main__ import train
train(sys.argv[1], 0, [], Path(sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("code", "killed_by"),
    [(WATCHED, signal.SIGKILL), pytest.param(STORED, signal.SIGTERM, marks=pytest.mark.campaign)],
)
def test_a_run_ends_with_its_benchmark(tmp_path: Path, bandit_policy: Path, code: str, killed_by: signal.Signals):
    """The run is one process here; modules of other runs end with their supervisor (`test_start_process.py`)."""
    one_process = {"runtime": {"kind": "synchronous"}, "admission": {"max_lag": 0}}
    recipe, run_dir = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text(to_toml(slow_learner(bandit_policy, max_train_steps=1000, **one_process)))
    command = [sys.executable, "-c", code, str(recipe), str(run_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as benchmark:
        try:
            wait_for(run_dir.exists, benchmark)
            (run,) = psutil.Process(benchmark.pid).children()
        finally:
            benchmark.send_signal(killed_by)
        _, alive = psutil.wait_procs([run], timeout=TIMEOUT_SECONDS)
    assert alive == []
