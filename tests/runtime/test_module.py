"""How a module ends: an error that says what to do is told apart from a bug, wherever in a task group it hides."""

import errno
import subprocess
import sys
from pathlib import Path

from quartet.errors import ConfigError, EngineError, SetupError
from quartet.runtime.module import explained

FULL = OSError(errno.ENOSPC, "No space left on device", "/runs/demo/metrics.jsonl")


def test_our_errors_explain_themselves():
    error = EngineError("it has stopped", "start it again")
    assert explained(error) is error
    assert explained(ExceptionGroup("", [KeyError(), ExceptionGroup("", [error])])) is error


def test_a_full_disk_is_named_also_from_a_task_group():
    for error in (FULL, ExceptionGroup("", [FULL])):
        known = explained(error)
        assert isinstance(known, SetupError)
        assert "/runs/demo/metrics.jsonl" in str(known) and "free some space" in str(known)


def test_a_bug_stays_a_bug():
    assert explained(OSError(errno.EACCES, "Permission denied")) is None
    assert explained(ExceptionGroup("", [KeyError()])) is None


def test_a_full_disk_under_stderr_leaves_the_exit_code_of_the_error(tmp_path: Path):
    """`logs/MODULE.stderr` is on the disk of the run. The recipe of this run is missing."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([sys.executable, "-m", "quartet.runtime.module", "env", tmp_path], stderr=full)
    assert ended.returncode == ConfigError.exit_code
