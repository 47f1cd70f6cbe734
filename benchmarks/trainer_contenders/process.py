"""Processes of the contenders, one thread each."""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from multiprocessing.connection import Connection
from pathlib import Path

import click

from benchmarks.trainer_contenders.base import Spent, Turns, Work
from benchmarks.trainer_contenders.batches import BATCHES, prepared

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "HF_HUB_OFFLINE": "1",
}
"""Environment variables of the contenders' processes."""


class Contender:
    """Process that trains the same batch again and again, one train step per turn."""

    def __init__(self, name: str, work: Work) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(name, work, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def step(self) -> Spent:
        """Return what the next train step costs. Raises `click.ClickException` if the process has ended."""
        self._connection.send(None)
        try:
            return self._connection.recv()
        except EOFError:
            self._process.join()
            raise click.ClickException(f"{self.name} ended with code {self._process.exitcode}") from None

    def close(self) -> None:
        self._connection.close()
        self._process.join()


@contextmanager
def contenders(names: Sequence[str], work: Work) -> Iterator[list[Contender]]:
    """Start a process for each name, and end them afterwards."""
    os.environ |= ENVIRONMENT
    started = [Contender(name, work) for name in names]
    try:
        yield started
    finally:
        for one in started:
            one.close()


def _serve(name: str, work: Work, connection: Connection) -> None:
    import torch

    from quartet.native.memory_allocator import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    turns, batch = Turns(connection), BATCHES[work.batch](work.rollouts)
    if name == "trl":
        from benchmarks.trainer_contenders import trl

        with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):
            trl.train(turns, batch, work)
    elif name.startswith("bare"):
        from benchmarks.trainer_contenders import bare

        bare.train(turns, prepared(batch), work, faster_library=name == "bare_faster_library")
    else:
        from benchmarks.trainer_contenders.ours import train

        train(turns, batch, work, apart=name == "leaves")
