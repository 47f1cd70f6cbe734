"""The command `quartet` in this process, which saves the second that a new one takes to start."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
import torch

from quartet.cli import main


class Ended(NamedTuple):
    """Exit code and output of a command that has ended."""

    returncode: int
    stdout: str
    stderr: str


def quartet(*arguments: object, folder: Path | None = None) -> Ended:
    """Run `quartet ARGUMENTS`, in `folder` if one is given, and return its exit code and output, without a terminal."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        restored_process(folder or Path.cwd()),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        if folder:
            patch.chdir(folder)
        patch.setattr(sys, "argv", ["quartet", *map(str, arguments)])
        patch.setattr(sys, "path", [*sys.path])
        patch.setattr(sys, "excepthook", sys.excepthook)
        patch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as stopped:
            main()
    return Ended(int(stopped.value.code or 0), out.getvalue(), err.getvalue())


@contextmanager
def restored_process(folder: Path) -> Iterator[None]:
    """Undo what the block leaves in this process: environment variables, torch's number of threads, and the modules
    directly in `folder` that it imports, since another test has other files of that name."""
    known, threads = set(sys.modules), torch.get_num_threads()
    try:
        with mock.patch.dict(os.environ):
            yield
    finally:
        torch.set_num_threads(threads)
        for name in set(sys.modules) - known:
            if Path(getattr(sys.modules[name], "__file__", None) or "").parent == folder:
                del sys.modules[name]
