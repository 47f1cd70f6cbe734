"""An environment host in a process of its own: started, sampled and killed by the soak test."""

import asyncio
import os
import signal
import subprocess
import sys
from typing import Self

import click
import psutil

from quartet import config
from quartet.die_with import child_command
from quartet.env import make_pool
from quartet.env.deadlines import Deadlines
from quartet.env.host import EnvHost

TOKEN = "soak"  # the host listens on this machine only, while the benchmark runs
MEGABYTE = 1 << 20
BROWSER = "--remote-debugging-pipe"
EXIT_TIMEOUT_SECONDS = 30.0


class HostProcess:
    """The running host, with the browser's processes."""

    def __init__(self, env: config.Env) -> None:
        self._env = env
        self.seen: dict[int, psutil.Process] = {}
        """Every process of every host so far."""

    def start(self) -> Self:
        """Start a host, in place of one that was killed, and wait until it listens."""
        command = child_command("benchmarks.soak.host", self._env.model_dump_json())
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        return self

    def processes(self) -> list[psutil.Process]:
        """Return the host and all processes below it."""
        host = psutil.Process(self._process.pid)
        found = [host, *host.children(recursive=True)]
        self.seen |= {process.pid: process for process in found}
        return found

    def megabytes(self) -> tuple[float, float]:
        """Return the memory of the host's own process, and of the browser (proportional set sizes)."""
        host, *others = self.processes()
        sizes = [_pss(process) for process in others]
        return _pss(host) / MEGABYTE, sum(sizes) / MEGABYTE

    def kill_page(self) -> None:
        """Kill the process of one page."""
        pages = [one for one in self.processes() if "--type=renderer" in _command(one)]
        pages[len(pages) // 2].kill()

    def kill_browser(self) -> None:
        """Kill the browser, which ends its pages."""
        for process in self.processes():
            if BROWSER in _command(process) and "--type=" not in " ".join(_command(process)):
                process.kill()

    def kill_host(self) -> None:
        """Kill the host, and start another one at another address."""
        self.processes()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.start()

    def end(self) -> bool:
        """Stop the host. Return False if it did not end in time; it is killed then."""
        self.processes()
        self._process.terminate()
        try:
            self._process.wait(EXIT_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False
        return True

    def orphans(self) -> int:
        """Return the number of processes of former hosts that still run some time after the last one was stopped."""
        mine = [process for process in self.seen.values() if process.pid != os.getpid()]
        _, alive = psutil.wait_procs(mine, timeout=EXIT_TIMEOUT_SECONDS)
        return sum(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in alive)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _pss(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except psutil.NoSuchProcess:
        return 0


async def serve(env: config.Env) -> None:
    """Serve the environment until the process is killed; print the address."""
    host = EnvHost(
        make_pool(env),
        name=env.name,
        capacity=env.sessions,
        token=TOKEN,
        deadlines=Deadlines.of(env),
    )
    await host.start()
    click.echo(host.url)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await host.stop()


if __name__ == "__main__":
    asyncio.run(serve(config.Env.model_validate_json(sys.argv[1])))
