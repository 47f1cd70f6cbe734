"""The writer protocol: trajectories in, one file out."""

from typing import BinaryIO, Protocol

from quartet.config import Recipe
from quartet.exchange.record import TrajectoryRecord


class Writer(Protocol):
    def __init__(self, file: BinaryIO, recipe: Recipe) -> None:
        """`recipe` is that of the run the trajectories come from. Raises `SetupError` when a library is missing."""

    def write(self, record: TrajectoryRecord) -> None:
        """Append a trajectory."""
        ...

    def finish(self) -> None:
        """Everything was appended."""
        ...
