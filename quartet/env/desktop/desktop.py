"""One desktop: an X server, a window manager, a session bus with AT-SPI, and programs in a home directory of their own.

A desktop lives for one episode, so nothing of an episode can reach the next one: no window, no setting, no key that is
still down, no clipboard. All methods block; `Deadline`s bound them.
"""

import math
import shutil
import time
from contextlib import suppress
from pathlib import Path

from Xlib.error import ConnectionClosedError, DisplayConnectionError

from quartet.env.desktop import sandbox
from quartet.env.desktop.accessibility import Accessibility
from quartet.env.desktop.deadline import Deadline
from quartet.env.desktop.devices import Devices
from quartet.env.desktop.display import display_name
from quartet.env.desktop.elements import Elements, Listing
from quartet.env.desktop.keymap import Keymap
from quartet.env.desktop.processes import Processes
from quartet.env.desktop.screen import Screen
from quartet.errors import EnvError

SKELETON = Path(__file__).parent / "skeleton"
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/games"
PROBE_SECONDS = 0.03
"""Interval of the two equal probes of a quiet desktop. It is longer than a tick of the processes' clocks."""
SETTLE_SECONDS = 3.0
"""Maximum wait for a quiet desktop: a program that always draws must not stop an episode."""
LEAST_SETTLE_SECONDS = 0.2
"""Time that a program always has for reading the keys and clicks before."""
ACTIONS_SETTLE_SECONDS = 6.0
"""Maximum duration of all waits for a quiet desktop between the actions of one response."""


class Desktop:
    """A running desktop."""

    def __init__(self, width: int, height: int, *, confined: bool, deadline: Deadline) -> None:
        """Start the desktop and wait until it is ready. Raise `EnvError` if a part of it does not start."""
        self._confined = confined
        self._processes = Processes()
        self._env: dict[str, str] = {}
        self.patience_seconds = math.inf
        """Time that all further waits for a quiet desktop may take together."""
        try:
            self._start(width, height, deadline)
        except (ConnectionClosedError, DisplayConnectionError, OSError) as error:
            self.close()
            raise EnvError(f"the desktop did not start: {error!r}; {self._processes.log()}") from error
        except BaseException:
            self.close()
            raise

    def _start(self, width: int, height: int, deadline: Deadline) -> None:
        folder = self._processes.folder
        shutil.copytree(SKELETON, self.home)
        for name in ("run", "tmp", "x11"):
            (folder / name).mkdir(0o700)
        (folder / "x11").chmod(0o1777)  # as an X server wants the folder of its socket
        self._env = _environment(folder, sandbox.HOME if self._confined else str(self.home))
        size = f"{width}x{height}x24"
        server = ["Xvfb", "-displayfd", "1", "-screen", "0", size, "-nolisten", "tcp", "-noreset", "-dpi", "96"]
        if self._confined:
            server = sandbox.confined_server(server, folder)
        pid, number = self._processes.start(server, self._env, reads_line=True)
        self._server = self._processes.tree(pid)
        self._env["DISPLAY"] = f":{number}"
        sockets = folder / "x11" if self._confined else Path(sandbox.X_SOCKETS)
        with display_name(sockets / f"X{number}") as name:
            self.screen = Screen(name)
        address = f"--address={self._env['DBUS_SESSION_BUS_ADDRESS']}"
        self._program(["dbus-daemon", "--session", "--nofork", "--print-address=1", address], reads_line=True)
        self._program(["openbox"])
        self._accessibility = Accessibility(self._env["DBUS_SESSION_BUS_ADDRESS"])
        self._elements = Elements(width, height)
        self._keymap = Keymap(self.screen.display, self.settle)
        self.devices = Devices(self.screen.display, self._keymap)
        deadline.wait(self.screen.managed, "the start of the window manager")

    @property
    def home(self) -> Path:
        """Home directory of the programs."""
        return self._processes.folder / "home"

    def launch(self, argv: list[str]) -> None:
        """Start a program in the home directory."""
        self._program(argv)

    def settle(self) -> bool:
        """Wait until two probes are equal: pixels, windows, and processes that all sleep. Return False if the desktop
        does not become quiet, after `LEAST_SETTLE_SECONDS` if `patience_seconds` are used up."""
        limit = min(SETTLE_SECONDS, max(self.patience_seconds, LEAST_SETTLE_SECONDS))
        deadline = Deadline(limit)
        quiet = self._becomes_quiet(deadline)
        self.patience_seconds -= limit - deadline.left()
        return quiet

    def _becomes_quiet(self, deadline: Deadline) -> bool:
        last = None
        while deadline.left():
            self.screen.display.sync()
            busy, activity = self._processes.activity(without=self._server)
            # While a process runs, reading windows and pixels would only take processor time from it.
            probe = None if busy else (activity, self.screen.windows(), self.screen.frame())
            if probe is not None and probe == last:
                return True
            last = probe
            time.sleep(PROBE_SECONDS)
        return False

    def listing(self) -> Listing:
        """Return the windows and elements that a policy can name."""
        return self._elements.listing(self.screen.windows(), self._accessibility.windows(self.screen.popups()))

    def close(self) -> None:
        """End all processes and remove the home directory; safe to call twice, and from another thread."""
        self._processes.close()
        with suppress(ConnectionClosedError, AttributeError, OSError):
            self.screen.display.close()
        with suppress(AttributeError, OSError):
            self._accessibility.close()

    def _program(self, argv: list[str], *, reads_line: bool = False) -> None:
        if self._confined:
            argv = sandbox.confined(argv, self._processes.folder)
        else:
            argv = ["env", f"--chdir={self.home}", *argv]
        self._processes.start(argv, self._env, reads_line=reads_line)


def _environment(folder: Path, home: str) -> dict[str, str]:
    """Return the environment of the programs. Settings are kept in files, which tasks can read."""
    return {
        "HOME": home,
        "PATH": PATH,
        "LANG": "C.UTF-8",
        "USER": "user",
        "SHELL": "/bin/bash",
        "TMPDIR": "/tmp" if home == sandbox.HOME else str(folder / "tmp"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={folder / 'run' / 'bus'}",
        "GSETTINGS_BACKEND": "keyfile",
        "GIO_USE_VFS": "local",
        "GTK_MODULES": "gail:atk-bridge",
    }
