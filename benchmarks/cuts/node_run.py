"""A run on nodes: the head supervises, the database is on a node of its own, and one more worker, engine and
environment host join from theirs, with wall clocks that are ten minutes wrong."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from benchmarks.crashes.crash_run import CrashRun, StuckError
from benchmarks.network.node import Node
from quartet.access.token import FILE as TOKEN
from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.ledger.database.location import Location, read_location, write_location

ROLES = ("worker", "engine", "env")
TEN_MINUTES = 600.0
MOST_JOINS = 1000
JOIN = """
import sys, time
from pathlib import Path
wall_clock = time.time
time.time = lambda: wall_clock() + float(sys.argv[3])
from quartet.die_with import die_with
die_with(int(sys.argv[4]))
from quartet.runtime.join import join_run
sys.exit(join_run(Path(sys.argv[1]), sys.argv[2]))
"""
"""Program that joins the run with a wrong wall clock."""


class NodeRun(CrashRun):
    """Context manager for the run. `nodes` are those of `ROLES`, `head` and `database`; `own_url` is the database's URL
    for this process, which is on no node."""

    def __init__(self, folder: Path, recipe: Recipe, nodes: Mapping[str, Node], own_url: str) -> None:
        super().__init__(folder, recipe)
        self.prefix = nodes["head"].prefix
        self._nodes, self._own_url = nodes, own_url
        self._joined: dict[str, subprocess.Popen[bytes]] = {}
        self._joins = 0

    def keep_alive(self) -> None:
        """Resume the run if it ended without a database, and let modules join again that ended once it is active."""
        super().keep_alive()
        if self.train_step() < 1 or not (self.run_dir / TOKEN).exists():  # a run that starts refuses them
            return
        for role in ROLES:
            process = self._joined.get(role)
            if process is None or process.poll() is not None:
                self._join(role)

    def finish(self, more_train_steps: int = 2) -> None:
        """Let the joined modules leave and the run end; then its ledger is read by this process only."""
        self._leave()
        super().finish(more_train_steps)
        self._point(self.run_dir)

    def _join(self, role: str) -> None:
        """Let a module join whose clock is wrong in the other direction than that of the one before."""
        self._joins += 1
        if self._joins > MOST_JOINS:
            raise StuckError("modules join and end again and again")
        ahead = TEN_MINUTES if self._joins % 2 else -TEN_MINUTES
        words = (str(self.run_dir), role, str(ahead), str(os.getpid()))
        command = [*self._nodes[role].prefix, sys.executable, "-c", JOIN, *words]
        with (self.folder / f"{role}.stderr").open("ab") as errors:
            self._joined[role] = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=errors, cwd=Path(__file__).parents[2]
            )

    def _leave(self) -> None:
        for process in self._joined.values():
            process.kill()
            process.wait()
        self._joined = {}

    def _open_ledger(self) -> Ledger:
        """Open the run's ledger by the server's Unix socket."""
        observer = self.folder / "observer"
        observer.mkdir(exist_ok=True)
        self._point(observer)
        return Ledger.open(observer)

    def _point(self, folder: Path) -> None:
        """Let the ledger of a folder be found by the server's Unix socket."""
        location = read_location(self.run_dir)
        assert location is not None
        write_location(folder, Location(self._own_url, location.schema))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        super().__exit__(kind, error, trace)
