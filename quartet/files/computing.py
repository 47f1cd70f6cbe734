"""Lock by which a trainer shows that it computes, for engines that share its device.

The lock ends with the process that holds it, so a trainer that dies does not keep the device. The file is opened for
reading and writing, since NFS requires the one for a shared lock and the other for an exclusive one.
"""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

FOLDER = "computing"
"""Folder in the run's folder with one lock file per trainer."""
ATTEMPTS = 20
"""Number of attempts to take the lock, 10 ms apart."""


@contextmanager
def computing(run_dir: Path, trainer: str) -> Iterator[None]:
    """Show that the trainer process named `trainer` computes while the block runs.

    A stopped process of the same trainer may hold the lock. Its successor does not wait for it: while it holds the
    lock, the trainer is shown as computing.
    """
    with _opened(run_dir, trainer) as file:
        for _ in range(ATTEMPTS):  # an engine's test lasts a moment
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
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
