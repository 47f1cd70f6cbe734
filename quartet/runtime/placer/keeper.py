"""Ray actor that keeps one module process on the node where Ray placed it.

The module is a child process, as on one machine: its exit code, its log and its ranks are those of `start_ranks`. The
kernel ends it when the actor ends. Ray ends the actor with its node, and when the process that supervises the run ends.
"""

import asyncio
import socket
from pathlib import Path

import ray  # pyright: ignore[reportMissingImports]
from msgspec import Struct

from quartet import __version__
from quartet.errors import QuartetError, SetupError
from quartet.free_port import free_port
from quartet.recipe.file import CONFIG
from quartet.runtime.placement import Placed
from quartet.runtime.start_process import StartedHere
from quartet.runtime.start_ranks import Meeting, start_ranks

POLL_SECONDS = 0.1


class Ended(Struct, frozen=True):
    """End of a module process: its exit code, and an error of the keeper that is not in the module's log."""

    code: int
    error: str = ""


class Keeper:
    """One module process. All methods run in the actor's event loop, so that `terminate` reaches a running process."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._process: StartedHere | None = None
        self._started = asyncio.Event()

    async def address(self) -> tuple[str, int]:
        """Return this node's address, and a port that is free on it, where the ranks of a trainer can meet."""
        return ray.util.get_node_ip_address(), free_port("")

    async def run(
        self, one: Placed, log: Path, version: str, size: int = 1, meet_at: tuple[str, int] | None = None
    ) -> Ended:
        """Start the module and wait for its end. Its ranks are some of `size`, which meet at an address."""
        meeting = Meeting(*meet_at, size, one.first_rank) if meet_at else None
        try:
            self._check(version)
            process = start_ranks(
                "spawn", one.module, self._run_dir, log, threads=one.threads, ranks=one.ranks, meeting=meeting
            )
        except QuartetError as error:
            return Ended(error.exit_code, str(error))
        self._process = process
        self._started.set()
        while (code := process.poll()) is None:  # noqa: ASYNC110  (a process sets no event)
            await asyncio.sleep(POLL_SECONDS)
        return Ended(code)

    async def pid(self) -> int | None:
        """Return the module's process id once it has started."""
        await self._started.wait()
        return self._process.pid if self._process else None

    async def terminate(self) -> None:
        """Ask the module to stop once it has started."""
        await self._started.wait()
        if self._process:
            self._process.terminate()

    async def kill(self) -> None:
        """Kill the module and its children, if it has started."""
        if self._process:
            self._process.kill()

    def _check(self, version: str) -> None:
        node = socket.gethostname()
        if version != __version__:
            raise SetupError(
                f"the node {node} has Quartet {__version__}, and the run was started by Quartet {version}",
                "install the same version on all nodes",
            )
        if not (self._run_dir / CONFIG).is_file():
            raise SetupError(
                f"the node {node} does not have the run's folder {self._run_dir}",
                "give a --run-dir on a file system that all nodes share at the same path",
            )
