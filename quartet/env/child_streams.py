"""A child process's side of a conversation with its parent: frames of bytes over its standard streams.

What the child's own code prints goes to the standard error.
"""

import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import BinaryIO

from quartet.die_with import die_with

OUT_OF_MEMORY = 77
"""Exit status of a child that reached its memory limit."""
HEADER = struct.Struct(">Q")
"""Length of the frame that follows."""


def read_frame(stream: BinaryIO) -> bytes:
    """Return the next frame; empty at the end of the stream."""
    header = stream.read(HEADER.size)
    return stream.read(HEADER.unpack(header)[0]) if len(header) == HEADER.size else b""


def write_frame(stream: BinaryIO, data: bytes) -> None:
    """Write one frame."""
    stream.write(HEADER.pack(len(data)) + data)
    stream.flush()


def limit_memory(megabytes: int) -> None:
    """Limit the data of this process, and of each process that it starts, in MiB. A lower limit stays."""
    limit = lowered(megabytes) << 20
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def lowered(megabytes: int) -> int:
    """Return a limit of memory in MiB, or the limit of this process if that is lower: only root could raise it."""
    own = resource.getrlimit(resource.RLIMIT_DATA)[1]
    return megabytes if own == resource.RLIM_INFINITY else min(megabytes, own >> 20)


def converse(run: Callable[[BinaryIO, BinaryIO], None]) -> None:
    """Run `run(requests, answers)` as the main program of a child whose first argument is the id of its parent.

    The child leads a process group. It ends with its parent, with all processes of the group, and with the status
    `OUT_OF_MEMORY` if it reaches its limit.
    """
    die_with(int(sys.argv[1]))
    _end_group_with(os.getpid())
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    try:
        run(requests, answers)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


def _end_group_with(leader: int) -> None:
    """Fork a process that kills the process group when its leader (this process) dies, even in native code."""
    if sys.platform != "linux" or os.fork():
        return
    os.close(0)
    os.close(1)  # the parent sees the end of the stream when the leader dies
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    die_with(leader)
    signal.sigwait([signal.SIGTERM])
    os.killpg(leader, signal.SIGKILL)
