"""Base of writers. A writer writes trajectories to one file in its format."""

from abc import ABC, abstractmethod
from typing import BinaryIO, ClassVar

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.exchange.record import TrajectoryRecord
from quartet.exchange.stored import Selection


class Writer(ABC):
    takes_screenshots: ClassVar[bool] = False
    """True if the format has a place for screenshots."""
    max_read: int | None
    """Maximum number of trajectories that the writer takes; None for all."""

    def __init__(self, file: BinaryIO, recipe: Recipe, limit: int | None = None) -> None:
        """Begin a file with at most `limit` trajectories; `recipe` is the recipe of the trajectories' run. Raise
        `SetupError` if a library is missing."""
        self.max_read = limit

    @abstractmethod
    def write(self, record: TrajectoryRecord) -> None:
        """Append a trajectory."""

    def finish(self) -> None:  # noqa: B027  (most formats have nothing to complete)
        """Complete the file after the last trajectory; by default do nothing, since every line is complete."""

    @property
    def num_revisions(self) -> int | None:
        """Number of revision trajectories written; None in formats that write each trajectory that they take."""
        return None

    @classmethod
    def refuse(cls, kind: str, selection: Selection) -> None:
        """Raise `ConfigError` for a selection that the format `kind` cannot write as asked."""
        if selection.screenshots and not cls.takes_screenshots:
            raise ConfigError(
                f"the format {kind} has no place for screenshots", "omit --screenshots, or export as jsonl or parquet"
            )
