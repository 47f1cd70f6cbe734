"""Confinement of programs that a policy wrote or started: the system's programs, one folder, and no network.

Bubblewrap gives each program its own file system, process ids and network.
"""

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from quartet.errors import SetupError

HOME = "/home/user"
"""Home directory that confined programs see."""
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/sbin", "/opt")
ISOLATED = (
    *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session"),
    *("--cap-drop", "ALL"),  # root keeps all capabilities otherwise
)
CODE = Path(__file__).parents[1]
"""Folder of the package `quartet`."""
KERNEL = tuple(f"/proc/{name}" for name in ("bus", "fs", "irq", "sys", "sysrq-trigger"))
"""Settings of the running kernel, which root could write even without capabilities."""


def read_only(paths: tuple[str, ...]) -> list[str]:
    """Return the arguments that show these paths, where they exist, without the right to write."""
    return [argument for path in paths for argument in ("--ro-bind-try", path, path)]


def confined_python(argv: list[str], folder: Path, temporary_bytes: int) -> list[str]:
    """Return the command that runs `argv`, a program of this Python, in `folder`, in which it cannot write.

    It sees Python and its packages, but neither the environment's variables nor other files. `/tmp` and
    `/dev/shm` are its own, with `temporary_bytes` each.
    """
    return [*_python(temporary_bytes), "--ro-bind", str(folder), HOME, "--chdir", HOME, *argv]


def confined_module(argv: list[str], temporary_bytes: int) -> list[str]:
    """Return the command that runs `argv`, a module of Quartet, in an empty folder, confined like `confined_python`.

    It also sees the code of Quartet, and the packages of other environments on this program's path.
    """
    packages = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    command = [
        *_python(temporary_bytes),
        *read_only((*packages, str(CODE))),
        "--setenv",
        "PYTHONPATH",
        str(CODE.parent),
    ]
    return [*command, "--setenv", "HOME", HOME, "--dir", HOME, "--chdir", HOME, *argv]


def _python(temporary_bytes: int) -> list[str]:
    """Return the beginning of a command that shows this Python and its packages."""
    command = ["bwrap", *ISOLATED, "--clearenv", "--dev", "/dev", "--proc", "/proc"]
    for place in ("/tmp", "/dev/shm"):
        command += ["--size", str(temporary_bytes), "--tmpfs", place]
    python = (sys.base_prefix, sys.prefix)
    command += ["--remount-ro", "/dev"]
    return command + read_only((*SYSTEM, "/etc/ld.so.cache", "/etc/alternatives", *KERNEL, *python))


@cache
def require_bubblewrap(what: str, setting: str, options: tuple[str, ...] = ()) -> None:
    """Raise `SetupError` if Bubblewrap is missing, may not make namespaces on this machine, or lacks one of `options`.

    `what` is confined, and `setting` is the setting that turns the confinement off; empty if there is none.
    """
    advice = f'in a machine or container that can be thrown away, set {setting} = "none" instead' if setting else ""
    if shutil.which("bwrap") is None:
        install = "; ".join(filter(None, ("install it (make desktop)", advice)))
        raise SetupError(f"bubblewrap, which confines {what}, is not installed", install)
    probe = ["bwrap", *ISOLATED, "--ro-bind", "/", "/", "--proc", "/proc", *options, "true"]
    result = subprocess.run(probe, capture_output=True, text=True, check=False)
    if result.returncode:
        reason = result.stderr.strip() or f"exit code {result.returncode}"
        raise SetupError(f"bubblewrap cannot confine {what} here: {reason}", advice)
