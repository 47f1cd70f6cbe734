"""The command `quartet` in this process, which saves the second that a new one takes to start."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import pytest

from quartet.cli import main


class Ended(NamedTuple):
    """What a shell would see of a command that has ended."""

    returncode: int
    stdout: str
    stderr: str


def quartet(*arguments: object) -> Ended:
    """Run `quartet ARGUMENTS` and return its exit code and output, without a terminal."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["quartet", *map(str, arguments)])
        patch.setattr(sys, "path", [*sys.path])
        patch.setattr(sys, "excepthook", sys.excepthook)
        patch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as stopped:
            main()
    return Ended(int(stopped.value.code or 0), out.getvalue(), err.getvalue())
