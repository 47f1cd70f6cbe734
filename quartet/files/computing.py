"""Lock by which a trainer shows that it computes, for engines that share its device.

The lock ends with the process that holds it, so a trainer that dies does not keep the device. The file is opened for
reading and writing, since NFS requires the one for a shared lock and the other for an exclusive one.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

FOLDER = "computing"
"""Folder in the run's folder with one lock file per trainer."""


@contextmanager
def computing(run_dir: Path, trainer: str) -> Iterator[None]:
    """Show that the trainer process named `trainer` computes while the block runs."""
    with _opened(run_dir, trainer) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # waits at most for a test by an engine
        yield


def is_computing(run_dir: Path, trainer: str) -> bool:
    """Return whether the trainer process named `trainer` computes now. Several engines may test it at the same time."""
    with _opened(run_dir, trainer) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _opened(run_dir: Path, trainer: str) -> IO[str]:
    folder = run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    return (folder / f"{trainer}.lock").open("a+")
