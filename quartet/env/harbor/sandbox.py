"""Files of one episode, in which commands run one after the other, each confined by Bubblewrap.

A command sees these files as its root folder, with programs of this machine and no network. It cannot change the
programs. When it ends, all processes that it started end.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from quartet.env.harbor.mounts import Mounts
from quartet.env.scratch import ScratchFolder
from quartet.errors import EnvError

START = """started=$4; printf started >&"$started"; exec {started}>&-
ulimit -v "$0" -f "$1" -u 1024; mkdir -p /tmp /root 2>/dev/null
cd -- "$2" || { echo "[the folder $2 is missing: this command begins in /]"; cd /; }
exec /bin/bash -c "$3"
"""
"""Shell program that reports its start to a file that the command does not get, limits the command (memory and
files in KiB, processes), enters its folder, and runs it."""
MAX_COMMAND_BYTES = (128 << 10) - 1
"""Length of an argument, which Linux limits."""
PROBE_SECONDS = 60.0
MAX_FILE_KILOBYTES = 256 << 10
MOST_REASONS = 3
"""Maximum number of files that an error names of those that could not be copied."""
ADVICE = "look at the disk, and at the files of the task"


class Ran(NamedTuple):
    """End of a command."""

    output: str
    """Text that it printed; of a long text the beginning and the end."""
    status: int | None
    """Exit status; None if it was killed at its time limit."""


class DamagedError(EnvError):
    """A command cannot start in the files as the agent left them, while one starts in the files of the beginning."""


class Sandbox:
    """Files of one episode. Its methods block."""

    def __init__(self, memory_megabytes: int, programs: Sequence[str] = (), origin: Path | None = None) -> None:
        """`memory_megabytes` limits the addresses of each process. `programs` are folders that commands may read beside
        the system's, and whose `bin` comes first in their path. The files are a copy of those below `origin`."""
        self._origin = origin
        self._memory_megabytes, self._programs = memory_megabytes, tuple(programs)
        self._running: subprocess.Popen[bytes] | None = None
        self._removed, self._lock = False, threading.Lock()
        with _disk_errors("the files of an episode cannot be made"):
            self._scratch = ScratchFolder("quartet-harbor-")
            self.root = self._scratch.path / "root"
            try:
                self._fill()
            except BaseException:
                self._scratch.remove()
                raise

    def _fill(self) -> None:
        """Make the files and what is mounted over them."""
        if self._origin is None:
            self.root.mkdir()
        else:
            shutil.copytree(self._origin, self.root, symlinks=True)
        self._mounts = Mounts(self._scratch.path, self.root, self._programs)

    def folder(self, name: str, content: Path | None = None) -> Path:
        """Return a new folder that no command has seen, with a copy of some content."""
        with _disk_errors(f"the folder of {name} cannot be made"):
            folder = Path(tempfile.mkdtemp(prefix=name, dir=self._scratch.path))
            if content is not None:
                shutil.copytree(content, folder, symlinks=True, dirs_exist_ok=True)
        return folder

    def run(
        self,
        command: str,
        workdir: str,
        seconds: float,
        *,
        variables: Mapping[str, str] = {},
        shown: Mapping[str, Path] = {},
        characters: int = 2000,
    ) -> Ran:
        """Run a shell command for at most `seconds`. `shown` are folders that it sees at some of
        the places `HIDDEN`.

        Raise `EnvError` if it could not be started, and `DamagedError` if that is the agent's doing.
        """
        argv = [*self._mounts.arguments(shown), *self._set(variables), "/bin/bash", "-c", START]
        argv += [str(self._memory_megabytes << 10), str(MAX_FILE_KILOBYTES), workdir, command]
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as started:
            status = self._wait([*argv, str(started.fileno())], seconds, output, started)
            text = _ends(output, characters)
            if not os.fstat(started.fileno()).st_size:
                kind = DamagedError if self._begins() else EnvError
                raise kind(f"a command could not be started: {text.strip()[-300:]}", "look at bubblewrap on this host")
        return Ran(text, status)

    def remove(self) -> None:
        """Kill the command that another thread runs, then delete the files; safe to call twice."""
        with self._lock:
            self._removed = True
            running = self._running
        if running is not None:
            running.kill()
            running.wait()
        self._scratch.remove()

    def _wait(self, argv: list[str], seconds: float, output: BinaryIO, started: BinaryIO) -> int | None:
        """Run a program for at most `seconds`. Return its exit status; None if it was killed then."""
        # A command may open its own output anew, as /dev/stderr, and empty it; what follows must not lie behind a gap.
        fcntl.fcntl(output, fcntl.F_SETFL, fcntl.fcntl(output, fcntl.F_GETFL) | os.O_APPEND)
        with self._lock:
            if self._removed:
                raise EnvError("the files of an episode were deleted during its step", "raise env.step_timeout_seconds")
            process = self._running = _started(argv, output, started)
        with process:
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                return None
            finally:
                process.kill()

    def _begins(self) -> bool:
        """Return whether a command starts in the files of the beginning, which no agent has changed."""
        if self._origin is None:
            return False
        fresh = Sandbox(self._memory_megabytes, self._programs)  # without an origin, so that it does not ask again
        try:
            with _disk_errors("the files of the beginning cannot be copied"):
                shutil.copytree(self._origin, fresh.root, symlinks=True, dirs_exist_ok=True)
            return fresh.run("true", "/", PROBE_SECONDS).status == 0
        except EnvError:
            return False
        finally:
            fresh.remove()

    def _set(self, variables: Mapping[str, str]) -> list[str]:
        """Return the arguments that set the variables of a command."""
        path = [*(f"{folder}/bin" for folder in self._programs), "/usr/local/bin", os.defpath]
        given = {"PATH": ":".join(path), "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb", **variables}
        return [argument for name, value in given.items() for argument in ("--setenv", name, value)]


@contextmanager
def _disk_errors(what: str) -> Iterator[None]:
    """Raise an error of the file system, such as a full disk or a file that cannot be copied, as `EnvError`."""
    try:
        yield
    except shutil.Error as error:  # (file, its copy, reason) of each file
        reasons = "; ".join(str(reason) for *_, reason in error.args[0][:MOST_REASONS])
        raise EnvError(f"{what}: {reasons}", ADVICE) from error
    except OSError as error:
        raise EnvError(f"{what}: {error}", ADVICE) from error


def _started(argv: list[str], output: BinaryIO, started: BinaryIO) -> "subprocess.Popen[bytes]":
    """Start a program, which may write to two files."""
    files = [started.fileno()]
    try:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=files, env={})
    except OSError as error:
        advice = f"a command and each variable may have {MAX_COMMAND_BYTES:,} bytes"
        raise EnvError(f"a command could not be started: {error}", advice) from error


def _ends(file: BinaryIO, characters: int) -> str:
    """Return the text of a file; of a long one the beginning and the end."""
    size = file.seek(0, os.SEEK_END)
    limit = 4 * characters
    file.seek(0)
    if size <= 2 * limit:
        return _shortened(file.read().decode(errors="replace"), characters)
    first = file.read(limit)
    file.seek(size - limit)
    return _shortened((first + file.read()).decode(errors="replace"), characters)


def _shortened(text: str, characters: int) -> str:
    """Leave out the middle of a long text."""
    half = characters // 2
    if len(text) <= characters:
        return text
    return f"{text[:half]}\n[...]\n{text[-half:]}"
