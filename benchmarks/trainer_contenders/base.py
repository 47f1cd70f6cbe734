"""What the contenders have in common: the policy, the settings of the step, and the protocol of turns."""

import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from quartet.policy.load import load_model
from quartet.policy.model import make_model

VOCABULARY = 4096
MICROBATCH_TOKENS = 8192
LEARNING_RATE, MAX_GRAD_NORM = 1e-5, 1.0
CLIP_LOW, CLIP_HIGH = 0.2, 0.28
EPSILON = 1e-4
"""Constant that TRL adds to the standard deviation of a group's rewards."""


class Work(NamedTuple):
    """What every contender trains: a batch of `batches.py`, and the policy in a folder."""

    batch: str
    rollouts: int
    policy: Path | None = None
    microbatch_tokens: int = MICROBATCH_TOKENS
    compute_dtype: str = "float32"
    """Precision of Quartet's matrix products."""


class Spent(NamedTuple):
    """Cost of a train step."""

    processor_seconds: float
    peak_bytes: int
    """Highest resident memory so far, minus the memory before the first train step."""


class Turns:
    """Turns of a contender: it begins a train step when the benchmark says so, and reports what the step cost."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bytes_before: int | None = None
        self._started = 0.0

    def begin(self) -> None:
        """Wait for the next turn. Raises `SystemExit` if there is none."""
        try:
            self._connection.recv()
        except EOFError:
            sys.exit()
        if self._bytes_before is None:
            self._bytes_before = psutil.Process().memory_info().rss
        self._started = time.process_time()

    def end(self) -> None:
        assert self._bytes_before is not None
        spent = Spent(time.process_time() - self._started, _peak_bytes() - self._bytes_before)
        self._connection.send(spent)


def new_model(policy: Path | None = None) -> Any:
    """Return the model in the folder `policy`; without one a Qwen3 with 3.4 M parameters in float32, in the sizes of
    `benchmarks.against_trl`."""
    if policy is not None:
        return load_model(policy).train()
    return make_model(VOCABULARY, hidden_size=256, num_layers=4, num_heads=4, num_kv_heads=2, intermediate_size=512)


def _peak_bytes() -> int:
    # `ru_maxrss` would include the memory of the parent process.
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
