"""The processes of a run, from the operating system's process table."""

from pathlib import Path

import psutil


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended; a zombie counts as ended."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def module_processes(supervisor: int) -> dict[str, psutil.Process]:
    """Return the live modules of the supervisor with this process id, by name."""
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
    """Return the supervisor and all modules of a run, also modules of dead supervisors."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if str(run_dir) in command_line(process):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            continue
    return found


def command_line(process: psutil.Process) -> list[str]:
    """Return the words of a command line, also if the process has set it itself as one text."""
    return " ".join(process.cmdline()).split()


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
