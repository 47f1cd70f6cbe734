"""Solutions of tasks, as one command of an agent."""

import base64
import shlex

from quartet.env.harbor.task import HarborTask

RUN = "chmod +x /solution/solve.sh; /solution/solve.sh"


def solving(task: HarborTask) -> str:
    """Return a command that writes the files of the solution to its place, which agents find empty, and runs it; empty
    if the task has no solution."""
    folder = task.folder / "solution"
    if not (folder / "solve.sh").is_file():
        return ""
    lines = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        place = shlex.quote(f"/solution/{file.relative_to(folder)}")
        content = base64.b64encode(file.read_bytes()).decode()
        lines.append(f"mkdir -p $(dirname {place}); base64 -d > {place} <<< {content}")
    return "\n".join([*lines, RUN])
