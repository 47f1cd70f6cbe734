"""Keeper of a desktop's processes: a program without dependencies that starts them and ends with all of them.

It reads one JSON object per line from its standard input and answers each with one line: `{"argv": [...], "env": {...},
"reads_line": bool}` starts a program and answers `{"pid": int, "line": str}` or `{"error": str}`. At the end of its
input, which is also the death of its parent, it kills every process that descends from it and removes its folder.

Orphans are reparented to the keeper (`PR_SET_CHILD_SUBREAPER`), so a program that forks into the background is found.
Should the keeper itself be killed, its programs die with it (`PR_SET_PDEATHSIG`), and with a confined program all that
it has started. Only what an unconfined program has forked into the background is then left.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import IO

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)
LINE_TIMEOUT_SECONDS = 20.0
REAP_INTERVAL_SECONDS = 0.002
KILL_TIMEOUT_SECONDS = 10.0
"""Maximum wait for the end of killed processes, which a disk or a device may block."""


def main(folder: str) -> None:
    """Serve requests until the end of the input, then end all processes and remove the folder."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.setsid()  # a signal to the parent's process group must not end the keeper before the programs
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: reap())
    try:
        for request in sys.stdin:
            sys.stdout.write(json.dumps(start(folder, **json.loads(request))) + "\n")
            sys.stdout.flush()
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kill_all()
        shutil.rmtree(folder, ignore_errors=True)


def start(folder: str, argv: list[str], env: dict[str, str], reads_line: bool) -> dict[str, object]:
    """Start a program. With `reads_line`, wait for the first line of its output."""
    with open(os.path.join(folder, "log"), "ab") as log:  # noqa: PTH118, PTH123
        try:
            process = subprocess.Popen(
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if reads_line else log,
                stderr=log,
                bufsize=0,
                preexec_fn=die_with_keeper,
            )
        except OSError as error:
            return {"error": f"cannot start {argv[0]}: {error.strerror}"}
    return {"pid": process.pid, "line": first_line(process.stdout) if process.stdout else ""}


def die_with_keeper() -> None:
    """Have the kernel kill this process, which is about to become a program, at the keeper's death."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def first_line(output: IO[bytes]) -> str:
    """Return what a program prints first, up to a line break; shorter if it ends or takes too long."""
    line = b""
    deadline = time.monotonic() + LINE_TIMEOUT_SECONDS
    with output as pipe:
        while not line.endswith(b"\n") and select.select([pipe], [], [], max(deadline - time.monotonic(), 0))[0]:
            byte = pipe.read(1)
            if not byte:
                break
            line += byte
    return line.decode(errors="replace").strip()


def reap() -> bool:
    """Wait for all children that have ended. Return whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def kill_all() -> None:
    """Kill all descendants until none is left, or one does not end in time."""
    deadline = time.monotonic() + KILL_TIMEOUT_SECONDS
    while reap() and time.monotonic() < deadline:
        kill_descendants(os.getpid())
        time.sleep(REAP_INTERVAL_SECONDS)


def kill_descendants(ancestor: int) -> None:
    """Kill the processes that descend from another one at this time."""
    for pid in descendants(ancestor):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def descendants(ancestor: int) -> dict[int, tuple[str, int]]:
    """Return the state (`R`, `S`, `D`, `Z`, ...) and the used processor ticks of each descendant, by process id."""
    children: dict[int, list[int]] = {}
    stats: dict[int, tuple[str, int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue  # it has ended
            stats[int(name)] = fields[0].decode(), int(fields[11]) + int(fields[12])
            children.setdefault(int(fields[1]), []).append(int(name))
    found = list(children.get(ancestor, []))
    for pid in found:
        found += children.get(pid, [])
    return {pid: stats[pid] for pid in found}


if __name__ == "__main__":
    main(sys.argv[1])
