"""File system of a command of an agent: the files of its episode, and programs of this machine."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from quartet.env.confinement import ISOLATED, KERNEL, SYSTEM, read_only
from quartet.errors import ConfigError

HIDDEN = ("/tests", "/solution", "/context", "/logs/verifier")
"""Folders that are empty except while a command is shown one of them. They are mounts in every command, so that none
can put a link in their place."""
FILES = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/passwd", "/etc/group")
PRELOADED = "/etc/ld.so.preload"
"""Libraries that each program would load first, the tests too."""
IN_MEMORY_BYTES = 64 << 20
"""Size of each of the folders that lie in memory: `HIDDEN` and /dev/shm."""


def require_hidden(folder: Path, programs: Sequence[str]) -> None:
    """Raise `ConfigError` if a folder with tests and solutions lies in a folder that commands may read."""
    for place in (*SYSTEM, *programs):
        if folder.resolve().is_relative_to(Path(place).resolve()):
            raise ConfigError(
                f"the folder {folder} lies in {place}, so an agent could read the tests and solutions of its tasks",
                "move the tasks to another folder, or choose other env.programs",
            )


class Mounts:
    """Arguments of Bubblewrap that show commands the files below `root` as their root folder."""

    def __init__(self, scratch: Path, root: Path, programs: tuple[str, ...]) -> None:
        """`scratch` is a folder in which /logs and an empty file are made. `root` exists, and no command runs yet."""
        self._root, self._programs = root, programs
        self._logs, self._empty = scratch / "logs", scratch / "empty"
        self._logs.mkdir()
        self._empty.touch()
        self._fixed = {root / place.relative_to("/"): place for place in _parents((*FILES, *programs))}
        for folder in self._fixed:
            folder.mkdir(exist_ok=True)

    def arguments(self, shown: Mapping[str, Path]) -> list[str]:
        """Return the beginning of a command, without variables; `shown` are folders for some of the places `HIDDEN`."""
        command = [shutil.which("bwrap") or "bwrap", *ISOLATED, "--clearenv", "--bind", str(self._root), "/"]
        for folder, place in self._fixed.items():
            command += ["--bind", str(folder), str(place)]
        command += ["--proc", "/proc", "--dev", "/dev", *_in_memory("/dev/shm"), "--remount-ro", "/dev"]
        command += read_only((*SYSTEM, *FILES, *KERNEL, *self._programs))
        command += ["--ro-bind", str(self._empty), PRELOADED, "--bind", str(self._logs), "/logs"]
        for place in HIDDEN:
            command += ["--bind", str(shown[place]), place] if place in shown else _in_memory(place)
        return command


def _in_memory(place: str) -> list[str]:
    return ["--size", str(IN_MEMORY_BYTES), "--tmpfs", place]


def _parents(places: tuple[str, ...]) -> list[PurePosixPath]:
    """Return the folders above some places, the highest first.

    Each is made a mount, which an agent cannot move: otherwise it could put a link in its place, which Bubblewrap
    would follow, out of the agent's files, when it makes the next command's mounts.
    """
    return sorted({parent for place in places for parent in PurePosixPath(place).parents} - {PurePosixPath("/")})
