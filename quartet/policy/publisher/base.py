"""Interface of publishers: the way of new weights from the trainer to the engines."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quartet.part import Part

if TYPE_CHECKING:
    import torch


class ReadWeights(NamedTuple):
    """Weights of a policy, by name, and the size in bytes of the files or tensors that were read for them."""

    tensors: "dict[str, torch.Tensor]"
    num_bytes: int


class Publisher(Part):
    """Way of new weights from the trainer to the engines.

    The folder of each version holds the whole weights, so every version can be loaded, resumed from and exported
    without the others. A publisher may add a shorter way for the engines. Trainer and engines each have an instance of
    their own for every policy.
    """

    @property
    def transfer_seconds(self) -> float:
        """Longest wait in seconds for tensors from the trainer's memory; 0 if weights are read from files only."""
        return 0.0

    def write(self, folder: Path, weights: "Mapping[str, torch.Tensor]", *, name: str) -> None:
        """Add files to `folder`, which holds the whole weights and will be renamed to `name`.

        The publisher may keep `weights`, so the caller must not change these tensors any more.
        """

    @abstractmethod
    def read(self, folder: Path) -> ReadWeights:
        """Return the weights of the policy in `folder`. The caller must not change these tensors.

        Raises `CheckpointError`, which names the file, if the whole weights are needed and damaged or missing.
        """
