"""Lock by which a trainer shows that it computes, for engines that share its device.

The lock ends with the process that holds it, so a trainer that dies does not keep the device.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILE = "computing.lock"
"""Lock file in the run's folder."""


@contextmanager
def computing(run_dir: Path) -> Iterator[None]:
    """Show that a trainer computes while the block runs. Several trainers may compute at the same time."""
    with (run_dir / FILE).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def is_computing(run_dir: Path) -> bool:
    """Return whether a trainer of the run computes now."""
    with (run_dir / FILE).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
