"""The processes of a run, as the operating system sees them."""

from pathlib import Path

import psutil


def has_ended(process: psutil.Process) -> bool:
    """Whether a process is gone, or waits only to be buried."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def module_processes(supervisor: int) -> dict[str, psutil.Process]:
    """Living modules of the supervisor with this process id, by name."""
    found: dict[str, psutil.Process] = {}
    for process in _children(supervisor):
        try:
            words = command_line(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        if "quartet.runtime.module" in words:
            found[words[words.index("quartet.runtime.module") + 1]] = process
    return found


def everybody(run_dir: Path) -> list[psutil.Process]:
    """The supervisor and all modules of a run, those of dead supervisors too."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if str(run_dir) in command_line(process):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            continue
    return found


def command_line(process: psutil.Process) -> list[str]:
    """Return the words of a command line, also of one that the process has set itself."""
    return " ".join(process.cmdline()).split()


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
