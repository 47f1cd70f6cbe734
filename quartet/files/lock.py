"""Lock files. At most one process holds a lock, and the kernel releases the lock when that process ends."""

import fcntl
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from quartet.errors import QuartetError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PID_NAMESPACE = Path("/proc/self/ns/pid")


class Holder(NamedTuple):
    """Process that holds a lock. Its id has a meaning only on its machine and in its container.

    Locks of Quartet 0.1.0 contain the id alone; the other fields are empty then.
    """

    pid: int
    host: str = ""
    boot: str = ""
    """Boot id of the machine's kernel; empty if the system has none."""
    namespace: str = ""
    """Inode of the namespace of process ids, which differs between containers; empty if the system has none."""

    @classmethod
    def this_process(cls) -> "Holder":
        boot = BOOT_ID.read_text().strip() if BOOT_ID.exists() else ""
        namespace = str(PID_NAMESPACE.stat().st_ino) if PID_NAMESPACE.exists() else ""
        return cls(os.getpid(), socket.gethostname(), boot, namespace)

    @classmethod
    def parse(cls, text: str) -> "Holder":
        pid, *place = text.strip("\n").split("\n")
        return cls(int(pid), *place)

    @property
    def is_here(self) -> bool:
        """True if the id names a process of this machine and container, as is assumed of an id alone."""
        here = Holder.this_process()
        if self.boot and here.boot:  # the name of a host may change while it runs
            return (self.boot, self.namespace) == (here.boot, here.namespace)
        return self.host in ("", here.host)

    def __str__(self) -> str:
        if self.is_here:
            return str(self.pid)
        other = "host" if self.host != socket.gethostname() else "another machine or container with the host name"
        return f"{self.pid} on {other} {self.host}"

    def text(self) -> str:
        """Return the content of the lock file."""
        return "\n".join((str(self.pid), *self[1:])) + "\n"


class ProcessLock:
    """Exclusive lock as a context manager. While it is held, the file names its holder."""

    def __init__(self, path: Path, refusal: Callable[[str], QuartetError]) -> None:
        """Prepare the lock. If another process holds it, `refusal` makes the error from that process's id and, if it
        runs elsewhere, its host."""
        self._path, self._refusal, self._descriptor = path, refusal, -1

    def __enter__(self) -> "ProcessLock":
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            text = self._path.read_text()
            raise self._refusal(str(Holder.parse(text)) if text else "unknown") from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, Holder.this_process().text().encode(), 0)
        return self

    def __exit__(self, *_: object) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def holder(path: Path) -> Holder | None:
    """Return the holder of a lock file; None if the lock is free, even if the file names a process."""
    if not path.exists() or not path.read_text():  # avoids taking a lock that another process may want
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = path.read_text()  # empty while the holder takes the lock or releases it
        return Holder.parse(text) if text else None
    finally:
        os.close(descriptor)
    return None
