"""Files of one episode, in which commands run one after the other, each confined by Bubblewrap.

A command sees these files as its root folder, with programs of this machine and no network. It cannot change the
programs. When it ends, all processes that it started end.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from quartet.env.confinement import ISOLATED, KERNEL, SYSTEM, read_only
from quartet.env.scratch import ScratchFolder
from quartet.errors import EnvError

START = """started=$4; printf started >&"$started"; exec {started}>&-
ulimit -v "$0" -f "$1"; mkdir -p /tmp /root 2>/dev/null
cd -- "$2" 2>/dev/null || cd /; exec /bin/bash -c "$3"
"""
"""Shell program that reports its start to a file that the command does not get, limits the command (in KiB), enters its
folder, and runs it."""
HIDDEN = ("/tests", "/solution", "/context", "/logs/verifier")
"""Folders that are empty except while a command is shown one of them. They are mounts in every command, so that none
can put a link in their place."""
FILES = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/passwd", "/etc/group")
MAX_FILE_KILOBYTES = 256 << 10


class Ran(NamedTuple):
    """End of a command."""

    output: str
    """Text that it printed; of a long text the beginning and the end."""
    status: int | None
    """Exit status; None if it was killed at its time limit."""


class Sandbox:
    """Files of one episode. Its methods block."""

    def __init__(self, memory_megabytes: int, programs: Sequence[str] = ()) -> None:
        """`memory_megabytes` limits the addresses of each process. `programs` are folders that commands may read beside
        the system's, and whose `bin` comes first in their path."""
        self._scratch = ScratchFolder("quartet-harbor-")
        self.root, self.logs = self._scratch.path / "root", self._scratch.path / "logs"
        self.logs.mkdir()
        self._memory_megabytes, self._programs = memory_megabytes, tuple(programs)

    @classmethod
    def begun(cls, root: Path, memory_megabytes: int, programs: Sequence[str]) -> Self:
        """Return a sandbox with a copy of another one's files."""
        sandbox = cls(memory_megabytes, programs)
        shutil.copytree(root, sandbox.root, symlinks=True)
        return sandbox

    def folder(self, name: str, content: Path | None = None) -> Path:
        """Return a new folder that no command has seen, with a copy of some content."""
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
        """Run a shell command for at most `seconds`. `shown` are folders that it sees at some of the `HIDDEN` places.

        Raise `EnvError` if it could not be started.
        """
        argv = [*self._confined(variables, shown), "/bin/bash", "-c", START, str(self._memory_megabytes << 10)]
        argv += [str(MAX_FILE_KILOBYTES), workdir, command]
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as started:
            status = _wait([*argv, str(started.fileno())], seconds, output, started)
            text = _ends(output, characters)
            if not os.fstat(started.fileno()).st_size:
                error = f"a command could not be started: {text.strip()[-300:]}"
                raise EnvError(error, "look at bubblewrap on this host")
        return Ran(text, status)

    def remove(self) -> None:
        """Delete the files; safe to call twice."""
        self._scratch.remove()

    def _confined(self, variables: Mapping[str, str], shown: Mapping[str, Path]) -> list[str]:
        """Return the command that runs a program in these files."""
        command = [shutil.which("bwrap") or "bwrap", *ISOLATED, "--clearenv", "--bind", str(self.root), "/"]
        command += ["--proc", "/proc", "--dev", "/dev", *read_only((*SYSTEM, *FILES, *KERNEL, *self._programs))]
        command += ["--bind", str(self.logs), "/logs"]
        for place in HIDDEN:
            command += ["--bind", str(shown[place]), place] if place in shown else ["--tmpfs", place]
        path = [*(f"{folder}/bin" for folder in self._programs), "/usr/local/bin", os.defpath]
        given = {"PATH": ":".join(path), "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb", **variables}
        for name, value in given.items():
            command += ["--setenv", name, value]
        return command


def _wait(argv: list[str], seconds: float, output: BinaryIO, started: BinaryIO) -> int | None:
    """Run a program for at most `seconds`. Return its exit status; None if it was killed then."""
    # A command may open its own output anew, as /dev/stderr, and empty it; what follows must not lie behind a gap.
    fcntl.fcntl(output, fcntl.F_SETFL, fcntl.fcntl(output, fcntl.F_GETFL) | os.O_APPEND)
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[started.fileno()], env={}
    ) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            process.kill()


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
