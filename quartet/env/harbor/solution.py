"""Solutions of tasks, as one command of an agent."""

import base64
import shlex

from quartet.env.harbor.sandbox import MAX_COMMAND_BYTES
from quartet.env.harbor.task import HarborTask

SOLVE = "chmod +x /solution/solve.sh; /solution/solve.sh"


def is_solvable(task: HarborTask) -> bool:
    """Return whether the task has a solution."""
    return (task.folder / "solution" / "solve.sh").is_file()


def solving(task: HarborTask) -> str:
    """Return a command that writes the files of the solution to its place, which agents find empty, and runs it; empty
    if the task has no solution, or one that is too long for a command."""
    if not is_solvable(task):
        return ""
    folder, lines = task.folder / "solution", []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        place = shlex.quote(f"/solution/{file.relative_to(folder)}")
        content = base64.b64encode(file.read_bytes()).decode()
        lines.append(f"mkdir -p $(dirname {place}); base64 -d > {place} <<< {content}")
    command = "\n".join([*lines, SOLVE])
    return command if len(command.encode()) <= MAX_COMMAND_BYTES else ""
