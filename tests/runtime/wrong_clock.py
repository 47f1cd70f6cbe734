"""A module that joins a run from a machine whose wall clock is wrong."""

import sys
import time
from pathlib import Path

from quartet.runtime.join import Role, join_run


def join_with_a_wrong_clock(run_dir: Path, role: Role, ahead_seconds: float) -> None:
    """End this process with the exit code of the module."""
    wall_clock = time.time
    time.time = lambda: wall_clock() + ahead_seconds
    sys.exit(join_run(run_dir, role))
