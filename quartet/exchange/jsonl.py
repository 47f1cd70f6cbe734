"""Trajectories as JSON Lines without loss: a line that is read back gives the same trajectory, bit for bit."""

import math
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import msgspec

from quartet.config import Recipe
from quartet.errors import ConfigError, LedgerError
from quartet.exchange.base import Writer
from quartet.exchange.format_1 import FormerRecord, current
from quartet.exchange.lines import read_lines
from quartet.exchange.record import TrajectoryRecord

_ADVICE = "see docs/exchange.md for the format"


class JsonlWriter(Writer):
    """Writer of one `TrajectoryRecord` per line, with screenshots in base64."""

    takes_screenshots = True

    def __init__(self, file: BinaryIO, recipe: Recipe, limit: int | None = None) -> None:
        super().__init__(file, recipe, limit)
        self._file, self._encoder = file, msgspec.json.Encoder()

    def write(self, record: TrajectoryRecord) -> None:
        """Append a trajectory. Raise `LedgerError` for a number that JSON cannot represent."""
        if not all(map(math.isfinite, _numbers(record))):
            raise LedgerError(
                f"rollout {record.provenance.rollout_id} has an infinite number or NaN, which JSON cannot represent",
                "export as parquet, or leave out the task family of this rollout",
            )
        self._file.write(self._encoder.encode(record) + b"\n")


def read_jsonl(path: Path) -> Iterator[tuple[int, TrajectoryRecord]]:
    """Yield line numbers, from 1, and records. Raise `ConfigError`, which names the line, if a line is invalid."""
    decoder = msgspec.json.Decoder(TrajectoryRecord | FormerRecord)
    for number, record in read_lines(path, decoder.decode, "trajectory", _ADVICE):
        try:
            yield number, current(record)
        except ValueError as error:
            raise ConfigError(f"{path}:{number}: {error}", _ADVICE) from error


def _numbers(record: TrajectoryRecord) -> Iterator[float]:
    trajectory = record.trajectory
    logprobs = (call.response.logprobs for call in trajectory.calls)
    rewards = (turn.rewards.values() for turn in trajectory.turns)
    return chain(trajectory.rewards.values(), *rewards, *logprobs)
