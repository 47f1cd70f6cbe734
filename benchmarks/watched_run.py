"""`quartet train` in separate processes; the benchmark reads the run's ledger while they run. They end with it."""

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from quartet.die_with import child_command
from quartet.ledger import Ledger


def train(
    recipe: Path | str,
    run_dir: Path,
    *,
    look: Callable[[Ledger], None],
    poll_seconds: float,
    settings: Sequence[str] = (),
) -> dict[str, Any]:
    """Train `recipe` in `run_dir` and return the run's summary. Every `poll_seconds` a callback receives its ledger.

    Raises `SystemExit` if the run fails.
    """
    command = child_command("quartet", "train", str(recipe), "--run-dir", str(run_dir), "--json")
    for setting in settings:
        command += ["--set", setting]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while process.poll() is None and not Ledger.exists(run_dir):
        time.sleep(poll_seconds)
    if process.poll() is None:
        _watch(process, run_dir, look, poll_seconds)
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit("the run failed; its error message is above")
    return json.loads(output.strip().splitlines()[-1])


def _watch(process: subprocess.Popen[str], run_dir: Path, look: Callable[[Ledger], None], poll_seconds: float) -> None:
    with closing(Ledger.open(run_dir)) as ledger:
        while process.poll() is None:
            look(ledger)
            time.sleep(poll_seconds)
