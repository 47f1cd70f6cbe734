"""Dashboard of a run during training, served by a separate process."""

import subprocess
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from quartet.die_with import child_command

View = Literal["none", "address", "browser"]
"""Way to show the dashboard. `none`: not at all. `address`: serve it and print its address. `browser`: also open it in
a browser."""
END_SECONDS = 5.0


@contextmanager
def dashboard(run_dir: Path, view: View, note: Callable[[str], None]) -> Iterator[None]:
    """Serve the run's dashboard on a free port of this machine during the block; `note` receives the address."""
    if view == "none":
        yield
        return
    command = child_command("quartet", "view", str(run_dir), "--port", "0")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    threading.Thread(target=_announce, args=(process, view, note), name="dashboard", daemon=True).start()
    try:
        yield
    finally:
        _end(process)


def _announce(process: "subprocess.Popen[str]", view: View, note: Callable[[str], None]) -> None:
    """Report the address as soon as the server listens. If the server fails, training continues."""
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    if not address:
        note("the dashboard did not start; `quartet view` says why")
        return
    note(f"dashboard  {address}")
    if view == "browser":
        webbrowser.open(address)


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
