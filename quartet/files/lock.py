"""Lock files. At most one process holds a lock, and the kernel releases the lock when that process ends."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from quartet.errors import QuartetError


class ProcessLock:
    """Exclusive lock as a context manager. While it is held, the file contains the process id of its holder."""

    def __init__(self, path: Path, refusal: Callable[[str], QuartetError]) -> None:
        """Prepare the lock. If another process holds it, `refusal` makes the error from that process's id."""
        self._path, self._refusal, self._descriptor = path, refusal, -1

    def __enter__(self) -> "ProcessLock":
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise self._refusal(self._path.read_text().strip() or "unknown") from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)
        return self

    def __exit__(self, *_: object) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def holder(path: Path) -> int | None:
    """Return the process id of the holder of a lock file; None if the lock is free, even if the file contains an id."""
    if not path.exists() or not path.read_text():  # avoids taking a lock that another process may want
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = path.read_text()  # empty while the holder takes the lock or releases it
        return int(text) if text else None
    finally:
        os.close(descriptor)
    return None
