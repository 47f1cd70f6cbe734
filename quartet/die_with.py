"""End a child process with its parent. Imports nothing of Quartet: it also runs in other Python environments.

`python -m quartet.die_with PARENT MODULE ARGUMENTS` runs a module as `python -m` does, in a process that ends with the
process PARENT.
"""

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Ask the kernel to send this process SIGTERM when its parent (a process id) dies, even by SIGKILL. Linux only."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent died before the request
        sys.exit(1)


def child_command(module: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return the command of a Python module, as `python -m` runs it, for a child process that ends with this one."""
    return [python, "-m", "quartet.die_with", str(os.getpid()), module, *arguments]


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    module = sys.argv[2]
    del sys.argv[1:3]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
