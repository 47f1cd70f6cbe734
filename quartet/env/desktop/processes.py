"""Processes of one desktop: started by a keeper, which ends all of them when this process ends."""

import json
import select
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from quartet.env.desktop import keeper
from quartet.errors import EnvError

ANSWER_TIMEOUT_SECONDS = keeper.LINE_TIMEOUT_SECONDS + 10.0
END_TIMEOUT_SECONDS = keeper.KILL_TIMEOUT_SECONDS + 5.0
"""Maximum wait for the keeper's end, after which it is killed."""
MAX_PROCESSES = 512


class Processes:
    """Programs of one desktop in the folder `folder`, which is removed with them."""

    def __init__(self) -> None:
        """Make the folder and start the keeper. Raise `EnvError` if it cannot be started."""
        self.folder = Path(tempfile.mkdtemp(prefix="quartet-desktop-"))
        command = [sys.executable, "-I", "-S", keeper.__file__, str(self.folder)]
        try:
            self._keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise EnvError(
                f"cannot start the process that supervises the desktop's programs: {error}",
                "lower env.sessions, or raise the machine's limits of processes, open files and memory",
            ) from error

    def start(self, argv: list[str], env: dict[str, str], *, reads_line: bool = False) -> tuple[int, str]:
        """Start a program. Return its process id, and with `reads_line` the first line of its output.

        Raise `EnvError` if the program is missing or prints no line.
        """
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        try:
            print(json.dumps({"argv": argv, "env": env, "reads_line": reads_line}), file=self._keeper.stdin, flush=True)
            if not select.select([self._keeper.stdout], [], [], ANSWER_TIMEOUT_SECONDS)[0]:
                raise EnvError(f"{argv[0]}: the process that supervises the desktop's programs does not answer")
            answer = json.loads(self._keeper.stdout.readline() or '{"error": "it was killed"}')
        except (OSError, ValueError) as error:
            raise EnvError(f"the process that supervises the desktop's programs has ended: {error}") from error
        if "error" in answer or (reads_line and not answer["line"]):
            reason = answer.get("error", "it ended at once")
            raise EnvError(
                f"{argv[0]} did not start: {reason}; last output of the desktop's programs: {self.log() or 'none'}",
                "run `make desktop` if a program is missing",
            )
        return answer["pid"], answer["line"]

    def tree(self, pid: int) -> set[int]:
        """Return a process and its descendants."""
        return {pid, *keeper.descendants(pid)}

    def activity(self, without: set[int]) -> tuple[bool, dict[int, tuple[str, int]]]:
        """Return whether any process runs or waits for a disk, and the state of all, without those of `without`.

        Raise `EnvError` if there are too many, as after a fork bomb.
        """
        stats = keeper.descendants(self._keeper.pid)
        if len(stats) > MAX_PROCESSES:
            raise EnvError(f"the desktop runs more than {MAX_PROCESSES} processes")
        others = {pid: stat for pid, stat in stats.items() if pid not in without}
        return any(state in "RD" for state, _ in others.values()), others

    def log(self) -> str:
        """Return the last lines that the programs printed."""
        path = self.folder / "log"
        lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
        return " | ".join(lines[-3:])

    def close(self) -> None:
        """Kill all programs, wait until none is left, and remove the folder; safe to call twice."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        with suppress(OSError):  # the keeper is gone, and a request is still in the buffer
            self._keeper.stdin.close()
        try:
            self._keeper.wait(END_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            keeper.kill_descendants(self._keeper.pid)  # one in the background would outlive the keeper
            self._keeper.kill()
            self._keeper.wait()
        self._keeper.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)  # in case the keeper was killed
