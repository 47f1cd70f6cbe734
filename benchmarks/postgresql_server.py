"""A PostgreSQL server of our own, for tests and benchmarks: Debian's binaries, a temporary folder, a Unix socket."""

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from quartet.errors import SetupError


@cache
def server_url(*, fsync: bool) -> str:
    """Start a server that ends with this process. Raises `SetupError` when PostgreSQL is not installed.

    Without `fsync` its commits do not wait for the disk: for tests, which nobody runs through a power cut.
    """
    binaries = _binaries()
    folder = Path(tempfile.mkdtemp(prefix="quartet-pg-"))
    as_user: list[str] = []
    if os.getuid() == 0:  # the server refuses to run as root
        shutil.chown(folder, "postgres", "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    data = folder / "data"
    _run([*as_user, f"{binaries}/initdb", "-D", str(data), "-U", "quartet", "-A", "trust", "--no-sync"], folder)
    options = (
        f"-c listen_addresses='' -c unix_socket_directories={folder} -c max_connections=50 "
        f"-c fsync={'on' if fsync else 'off'} -c shared_buffers=512MB -c max_wal_size=4GB"
    )
    control = [*as_user, f"{binaries}/pg_ctl", "-D", str(data), "-w"]
    _run([*control, "-o", options, "-l", str(folder / "log"), "start"], folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(_run, [*control, "-m", "immediate", "stop"], folder)
    return f"postgresql://quartet@/postgres?host={folder}"


def _binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(shutil.which("initdb") or "")]
    if not found[-1].is_file():
        raise SetupError("PostgreSQL's server programs are not installed", "apt-get install postgresql")
    return found[-1].parent


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60)
    if done.returncode:
        raise SetupError(f"{command} failed: {done.stdout}{done.stderr}", "see the server's log there")
