"""A child process that runs code which may hang, end or need too much memory: started, asked and killed by its
parent."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress

from quartet.env.child_streams import HEADER, OUT_OF_MEMORY, lowered
from quartet.env.confinement import confined_module

BUBBLEWRAP_ID = "1"
"""Id of the parent of a confined child, in its own numbering: Bubblewrap, which ends with this process."""
GRACE_SECONDS = 1.0
"""Time in which a process that closed its output may end before it is killed."""


class ChildFailedError(Exception):
    """The child did not answer, and was killed. The message says why, with the child as its subject."""


class ChildProcess:
    """Program of this Python in a process group of its own. It answers one frame of bytes at a time."""

    def __init__(self, module: str, max_memory_megabytes: int, *, confined: bool = False) -> None:
        """`module` has a main program that calls `quartet.env.child_streams.converse`. The child limits its memory
        itself; the limit is given here for the message about it. A confined child runs under Bubblewrap."""
        self._module, self._max_memory_megabytes = module, max_memory_megabytes
        self._confined = confined
        self._process: Process | None = None

    @property
    def running(self) -> bool:
        """True from the start until the process ends, `end` is called, or a request fails."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process, in place of one that ended."""
        await self.end()
        command = [sys.executable, "-m", self._module]
        if self._confined:
            command = confined_module([*command, BUBBLEWRAP_ID], self._max_memory_megabytes << 20)
        else:
            command.append(str(os.getpid()))
        self._process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)

    async def ask(self, request: bytes, limit_seconds: float, grace_seconds: float = 0.0) -> bytes:
        """Return the answer to a request. Raise `ChildFailedError` if the process ends, or hangs for `grace_seconds`
        longer than its limit; it is then killed."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(limit_seconds + grace_seconds):
                process.stdin.write(HEADER.pack(len(request)) + request)
                await process.stdin.drain()
                (length,) = HEADER.unpack(await process.stdout.readexactly(HEADER.size))
                return await process.stdout.readexactly(length)
        except TimeoutError as error:
            await self.end()
            raise ChildFailedError(f"did not end within {limit_seconds:g} s and was killed") from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), GRACE_SECONDS)
            status = process.returncode
            await self.end()
            raise ChildFailedError(self._ended(status)) from error

    async def end(self) -> None:
        """Kill the process and the processes that it started, and wait for its end. Safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def _ended(self, status: int | None) -> str:
        if status is None:
            return "disturbed the protocol of its process, which was killed"
        if status == OUT_OF_MEMORY:
            limit = lowered(self._max_memory_megabytes)
            inherited = ", the limit of the process that started it" if limit < self._max_memory_megabytes else ""
            return f"needed more than {limit} MB{inherited}"
        if status < 0:
            return f"was ended by {signal.Signals(-status).name}"
        return f"ended its process with exit status {status}"
