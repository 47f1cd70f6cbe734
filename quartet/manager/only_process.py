"""Lock for a module with only one process per run: the data manager."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quartet.errors import SetupError


@contextmanager
def only_process(run_dir: Path, module: str) -> Iterator[None]:
    """Hold the lock `MODULE.lock` of the run during the block; the kernel also releases it if the process dies.

    Raises `SetupError` that names the process which holds the lock.
    """
    path = run_dir / f"{module}.lock"
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise SetupError(
                f"{run_dir} already has a {module}: process {file.read().strip() or 'unknown'}",
                f"a run has one {module}; `quartet train` starts it, `quartet stop {run_dir}` ends the run",
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
