"""One Chromium with several pages, driven over a pipe.

The browser runs in its own process group with a temporary profile. It ends when it is closed or when this process dies;
the profile is removed in both cases. Pages cannot reach the network or local services such as the engine.
"""

import asyncio
import fcntl
import os
import shutil
import signal
from pathlib import Path

from quartet.env.cdp import Connection, Event
from quartet.env.page import Page
from quartet.env.scratch import ScratchFolder
from quartet.errors import EnvError, SetupError

# The headless shell comes first: it takes a quarter less processor time per turn.
SHELLS = ("chromium-headless-shell", "chrome-headless-shell")
PROGRAMS = (*SHELLS, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
START_TIMEOUT_SECONDS = 30.0
DISABLED_FEATURES = (
    # Treats pages without a screen as background work and lowers their priority.
    "PMProcessPriorityPolicy",
    # Keeps two processes per window for an address bar that is never shown.
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "PreloadTopChromeWebUI",
    # Keeps a process for the empty page that every window starts with.
    "BackForwardCache",
    "DialMediaRouteProvider",
    "MediaRouter",
    "OptimizationHints",
    "Translate",
    # Moves the sandboxed frame of a task to its own process.
    "IsolateSandboxedIframes",
)
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-startup-window",
    "--mute-audio",
    "--disable-gpu",
    # A small container has a small /dev/shm; without this flag pages crash there.
    "--disable-dev-shm-usage",
    # Give all pages the same priority, whichever window the browser considers to be in front.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-smooth-scrolling",
    # Block all hosts for every page. The rule covers IP addresses and all kinds of requests.
    "--host-resolver-rules=MAP * ~NOTFOUND",
    # Disable the browser's own traffic.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-breakpad",
    "--metrics-recording-only",
    "--password-store=basic",
    "--use-mock-keychain",
    # Render the same pixels on every machine.
    "--force-color-profile=srgb",
    "--force-device-scale-factor=1",
    "--font-render-hinting=none",
    "--disable-features=" + ",".join(DISABLED_FEATURES),
)


def find_chromium() -> str:
    """Return the browser's path: `QUARTET_CHROMIUM` if it is set, else the first known program on PATH.

    Raise `SetupError` if there is no such program.
    """
    chosen = os.environ.get("QUARTET_CHROMIUM")
    if chosen:
        if path := shutil.which(chosen):
            return _behind_script(path)
        raise SetupError(
            f"QUARTET_CHROMIUM is {chosen!r}, which is not an executable program",
            "set it to the path of a Chromium or Chrome, or unset it",
        )
    for program in PROGRAMS:
        if path := shutil.which(program):
            return _behind_script(path)
    raise SetupError(
        f"no browser found: none of {', '.join(PROGRAMS)} is on PATH",
        "install one (Debian: apt-get install chromium-headless-shell fonts-dejavu-core), "
        "or set QUARTET_CHROMIUM to its path",
    )


def _behind_script(path: str) -> str:
    """Return the program that Debian's shell script starts, or `path` itself for any other program.

    The shell script stays the parent process, and signals would go to it.
    """
    program = Path(path).parent.parent / "lib" / "chromium" / "chromium-headless-shell"
    return str(program) if Path(path).name == SHELLS[0] and program.exists() else path


class Browser:
    """A running Chromium. Create it with `Browser.start()`."""

    def __init__(self, pid: int, connection: Connection, profile: ScratchFolder) -> None:
        self.pid = pid
        self.connection = connection
        """Connection for the browser's DevTools protocol."""
        self._profile = profile
        self._pages: set[str] = set()
        self._unknown: set[str] = set()
        self._opening = 0

    @classmethod
    async def start(cls) -> "Browser":
        """Start a browser and wait until it answers. Raise `SetupError` if it does not."""
        program = find_chromium()
        profile = ScratchFolder("quartet-chromium-")
        flags = [*FLAGS, f"--user-data-dir={profile.path}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # Chromium refuses to run its sandbox as root.
        try:
            pid, read_fd, write_fd = _spawn(program, flags, profile)
        except SetupError:
            await asyncio.to_thread(profile.remove)
            raise
        browser = cls(pid, await Connection.open(read_fd, write_fd), profile)
        try:
            await browser._prepare()
        except asyncio.CancelledError:
            await browser.close()
            raise
        except EnvError as error:
            log = (profile.path / "stderr.log").read_text(errors="replace").strip().splitlines()
            await browser.close()
            raise SetupError(
                f"{program} did not start: {error.what}; end of its stderr: {' | '.join(log[-3:]) or 'empty'}",
                "start the browser by hand with --headless=new to see what is missing",
            ) from error
        return browser

    async def _prepare(self) -> None:
        """Wait until the browser answers and subscribe to reports of new pages."""
        browser = self.connection.browser
        browser.on("Target.targetCreated", self._page_reported)
        browser.on("Target.targetInfoChanged", self._page_reported)  # a page cannot be closed while it is being made
        browser.on("Target.targetDestroyed", lambda event: self._pages.discard(event["targetId"]))
        await browser.call(
            "Target.setDiscoverTargets",
            discover=True,
            filter=[{"type": "page"}],
            timeout_seconds=START_TIMEOUT_SECONDS,
        )

    @property
    def alive(self) -> bool:
        return not self.connection.closed

    async def new_page(self, url: str, *, width: int, height: int) -> Page:
        """Open a URL in its own window and process, so that a crash affects one page only. A process takes about 25
        MB."""
        browser = self.connection.browser
        self._opening += 1  # `_page_reported` is called before the call returns.
        try:
            target = await browser.call(
                "Target.createTarget", url="about:blank", newWindow=True, width=width, height=height
            )
            attached = await browser.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            self._pages.add(target["targetId"])  # before that, a failure leaves it to `_close_unknown`
        finally:
            self._opening -= 1
            self._close_unknown()
        page = Page(self.connection, self.connection.session(attached["sessionId"]), target["targetId"])
        try:
            await page.prepare(width, height)
            await page.navigate(url)
        except (EnvError, asyncio.CancelledError):
            await page.close()
            raise
        return page

    async def close(self) -> None:
        """End the browser with all its processes and remove its profile; safe to call twice."""
        self.connection.close()
        await asyncio.to_thread(_reap, self.pid)
        await asyncio.to_thread(self._profile.remove)

    def _page_reported(self, event: Event) -> None:
        self._unknown.add(event["targetInfo"]["targetId"])
        self._close_unknown()

    def _close_unknown(self) -> None:
        """Close the pages that were not opened by `new_page`: popups, and links opened in a new tab."""
        if self._opening or self.connection.closed:
            return
        for target_id in self._unknown - self._pages:
            self.connection.send("", "Target.closeTarget", {"targetId": target_id})
        self._unknown.clear()


def _spawn(program: str, flags: list[str], profile: ScratchFolder) -> tuple[int, int, int]:
    """Start the browser in its own process group; return its pid and this process's pipe ends (read, write)."""
    their_read, our_write = os.pipe()
    our_read, their_write = os.pipe()
    # The child's descriptors must not be 3, 4 or 5 before they are moved there: moving one would overwrite another.
    theirs = (their_read, their_write, profile.hold_fd)
    high_read, high_write, high_hold = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in theirs)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, str(profile.path / "stderr.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, high_read, 3),
        (os.POSIX_SPAWN_DUP2, high_write, 4),
        (os.POSIX_SPAWN_DUP2, high_hold, 5),
    ]
    # The browser's other temporary files, such as a socket, are then removed with the profile.
    environment = {**os.environ, "TMPDIR": str(profile.path)}
    try:
        pid = os.posix_spawn(program, [program, *flags], environment, file_actions=actions, setpgroup=0)
    except OSError as error:
        os.close(our_read)
        os.close(our_write)
        raise SetupError(f"cannot start {program}: {error}", "set QUARTET_CHROMIUM to a Chromium that runs") from error
    finally:
        for fd in (their_read, their_write, high_read, high_write, high_hold):
            os.close(fd)
    return pid, our_read, our_write


def _reap(pid: int) -> None:
    """Kill the process group and wait for its leader, a child of this process."""
    try:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        return  # Already gone.
