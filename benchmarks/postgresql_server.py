"""Private PostgreSQL server for tests and benchmarks: Debian's binaries, a temporary folder, a Unix socket."""

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil

from quartet.errors import SetupError

_URL = "postgresql://quartet@/postgres?host="


@cache
def server_url(*, fsync: bool) -> str:
    """Start a server that ends with this process, and return its URL.

    Without `fsync` its commits do not wait for the disk, which is enough for tests. Raises `SetupError` if PostgreSQL
    is not installed.
    """
    return f"{_URL}{_started(fsync=fsync)}"


def network_server(prefix: Sequence[str], address: str) -> tuple[str, str]:
    """Start a server on a node of a network (`prefix` runs a command there) that listens on an address of the node.

    Return its URL for the nodes, and its URL for this process, by its Unix socket.
    """
    folder = _started(fsync=False, address=address, prefix=prefix)
    return f"postgresql://quartet@{address}/postgres", f"{_URL}{folder}"


def _started(*, fsync: bool, address: str = "", prefix: Sequence[str] = ()) -> Path:
    """Start a server that ends with this process, and return its folder."""
    folder = Path(tempfile.mkdtemp(prefix="quartet-pg-"))
    as_user = _as_user()
    if as_user:
        shutil.chown(folder, "postgres", "postgres")
    data = folder / "data"
    initdb = [f"{_binaries()}/initdb", "-D", str(data), "-U", "quartet", "-A", "trust", "--no-sync"]
    _run([*as_user, *initdb], folder)
    if address:
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {address}/24 trust\n")
    options = (
        f"-c listen_addresses='{address}' -c unix_socket_directories={folder} -c max_connections=200 "
        f"-c fsync={'on' if fsync else 'off'} -c shared_buffers=512MB -c max_wal_size=4GB"
    )
    _control(folder, "-o", options, "-l", str(folder / "log"), "start", prefix=prefix)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(_control, folder, "-m", "immediate", "stop")
    return folder


def crash_server(url: str) -> None:
    """Kill the server, as if it crashed, and start it again."""
    folder = Path(url.removeprefix(_URL))
    _control(folder, "-m", "immediate", "-l", str(folder / "log"), "restart")


@contextmanager
def frozen_server(url: str) -> Iterator[None]:
    """Stop all processes of the server during the block: it accepts connections but does not answer."""
    folder = Path(url.removeprefix(_URL))
    postmaster = psutil.Process(int((folder / "data" / "postmaster.pid").read_text().split()[0]))
    postmaster.send_signal(signal.SIGSTOP)  # first, so that it starts no further processes
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGCONT)


def end_connections(url: str, pid: int) -> int:
    """Let the server end all connections of a process of Quartet; return their number."""
    import psycopg  # an extra that only these runs need

    mine = {"name": f"quartet-{pid}"}
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %(name)s"
    with psycopg.connect(url) as connection:
        return len(connection.execute(query, mine).fetchall())


def _control(folder: Path, *arguments: str, prefix: Sequence[str] = ()) -> None:
    _run([*prefix, *_as_user(), f"{_binaries()}/pg_ctl", "-D", str(folder / "data"), "-w", *arguments], folder)


def _as_user() -> list[str]:
    """Return the command prefix that runs the server as another user, since it does not run as root."""
    return ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []


def _binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(shutil.which("initdb") or "")]
    if not found[-1].is_file():
        raise SetupError("PostgreSQL's server programs are not installed", "apt-get install postgresql")
    return found[-1].parent


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60)
    if done.returncode:
        raise SetupError(f"{command} failed: {done.stdout}{done.stderr}", f"see {folder / 'log'}")
