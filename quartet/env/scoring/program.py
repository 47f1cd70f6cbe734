"""One run of a program that a policy wrote: its limits, and whether its end is its own doing."""

import fcntl
import math
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from quartet.env.confinement import confined_python
from quartet.errors import RewardError

MAX_OUTPUT_BYTES = 1 << 20
MAX_PROCESSES = 1024
START = Path(__file__).with_name("program_start.py").read_text()
POLL_SECONDS, FIRST_POLL_SECONDS = 0.1, 0.01
"""Greatest and least time between two looks at a running program. Looks at a program that has just begun are closer:
what passes after the last one counts as its own, also where it waited for a processor."""


class Ended(NamedTuple):
    """End of a program that started."""

    seconds: float
    """Duration, without the time for which it waited for a processor, as far as that was observed."""
    output: str = ""
    exited: bool = False
    """Exit status 0."""
    complete: bool = False
    """The end of the program's text was reached."""


def run_program(program: str, given: str, limit_seconds: float, memory_megabytes: int, *, confined: bool) -> Ended:
    """Run a Python program with an input, for at most `limit_seconds` of processor time, rounded up to whole seconds.

    Raise `RewardError` if it could not start.
    """
    secret = secrets.token_hex(16)
    limits = (math.ceil(limit_seconds), memory_megabytes << 20, MAX_PROCESSES, MAX_OUTPUT_BYTES)
    with (
        tempfile.TemporaryDirectory(prefix="quartet-code-") as folder,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as started,
        tempfile.TemporaryFile() as complete,
    ):
        # The program may open its output anew and empty it; what follows must not lie behind a gap.
        fcntl.fcntl(output, fcntl.F_SETFL, fcntl.fcntl(output, fcntl.F_GETFL) | os.O_APPEND)
        (Path(folder) / "program.py").write_text(program, "utf-8", errors="replace")
        reports = [started.fileno(), complete.fileno()]
        argv = [sys.executable, "-I", "-c", START, *map(str, (*reports, *limits))]
        argv = confined_python(argv, Path(folder), memory_megabytes << 20) if confined else argv
        with (
            _sent(secret.encode() + given.encode(errors="replace")) as stdin,
            subprocess.Popen(
                argv,
                cwd=folder,
                env={"PATH": os.defpath},
                stdin=stdin,
                stdout=output,
                stderr=output,
                pass_fds=reports,
            ) as process,
        ):
            seconds = _wait(process, math.ceil(limit_seconds))
        output.seek(0)
        text = output.read().decode(errors="replace")
        complete.seek(0)
        reported = complete.read()
        if not os.fstat(started.fileno()).st_size:
            raise RewardError(
                f"could not start a program: {text.strip()[-200:]}",
                "look at the sandbox and at the load of this machine",
            )
    return Ended(
        seconds=seconds,
        output=text,
        exited=process.returncode == 0,
        complete=secret.encode() in reported,
    )


@contextmanager
def _sent(data: bytes) -> Iterator[int]:
    """Give the reading end of a pipe into which a thread writes. A program could read a file again, with its secret;
    and `communicate` sends nothing more after its first timeout."""
    reading, writing = os.pipe()
    threading.Thread(target=_send, args=(writing, data), daemon=True).start()
    try:
        yield reading
    finally:
        os.close(reading)


def _send(writing: int, data: bytes) -> None:
    with suppress(BrokenPipeError), open(writing, "wb") as pipe:
        pipe.write(data)


def _wait(process: "subprocess.Popen[bytes]", limit_seconds: int) -> float:
    """Wait for the end of a program, and kill it if it sleeps or has many busy processes. Return its seconds."""
    began, passed, seconds = time.monotonic(), 0.0, 0.0
    while True:
        try:
            process.wait(min(POLL_SECONDS, max(FIRST_POLL_SECONDS, passed / 2)))
        except subprocess.TimeoutExpired:
            passed = time.monotonic() - began
            ran, waited = (sum(times) for times in zip((0.0, 0.0), *_schedules(process.pid), strict=True))
            seconds = max(seconds, ran, passed - waited)
            if ran > 2 * limit_seconds or passed - ran - waited > 2 * limit_seconds + 1:
                process.kill()
        else:
            return seconds + time.monotonic() - began - passed


def _schedules(pid: int) -> Iterator[tuple[float, float]]:
    """Yield the seconds for which the threads of a process and of its descendants ran, and waited for a processor."""
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):  # the thread ended
            ran, waited, _ = (thread / "schedstat").read_text().split()
            yield int(ran) / 1e9, int(waited) / 1e9
            for child in (thread / "children").read_text().split():
                yield from _schedules(int(child))
