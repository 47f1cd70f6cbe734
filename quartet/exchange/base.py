"""Protocol of writers. A writer writes trajectories to one file in its format."""

from typing import BinaryIO, Protocol

from quartet.config import Recipe
from quartet.exchange.record import TrajectoryRecord


class Writer(Protocol):
    def __init__(self, file: BinaryIO, recipe: Recipe) -> None:
        """Begin a file; `recipe` is the recipe of the trajectories' run. Raise `SetupError` if a library is missing."""

    def write(self, record: TrajectoryRecord) -> None:
        """Append a trajectory."""
        ...

    def finish(self) -> None:
        """Complete the file after the last trajectory."""
        ...
