"""The interface of kinds of models, and of what they do with pictures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from quartet.types import Media, Prompt

if TYPE_CHECKING:  # a rollout worker reads sizes of pictures, and loads no model
    from pathlib import Path

    import torch


class ModelKind(ABC):
    """A family of architectures."""

    reads_pictures: ClassVar[bool] = False

    @abstractmethod
    def load(self, folder: Path, **options: Any) -> Any:
        """Return the model in `folder`, with its output matrix: `from_pretrained` with these options."""

    @abstractmethod
    def pictures(self, folder: Path) -> PictureProcessor | None:
        """Return what the policy in `folder` makes of pictures; None for a model that reads text alone."""


class PictureProcessor(ABC):
    """Pictures as a model reads them. The only place where one becomes placeholder ids."""

    fingerprint: str
    """Of all that decides about grids and patches; recorded with every picture."""
    never_sampled: list[int]
    """Token ids that stand for pictures: no response may hold one."""

    @abstractmethod
    def prompt(self, picture: bytes) -> Prompt:
        """Return the ids that stand for an encoded picture. Only its header is read.

        Raises `PictureTooLargeError`, and `EnvError` for what is no picture.
        """

    @abstractmethod
    def positions(self, ids_L: np.ndarray, media: Sequence[Media]) -> np.ndarray:
        """Return the positions `[3, L]` (time, height, width) of a sequence's tokens.

        Raises `PlaceholderMismatchError` where its placeholders are not those of its pictures.
        """

    @abstractmethod
    def inputs(self, shown: Sequence[tuple[Media, bytes]]) -> dict[str, torch.Tensor]:
        """Decode pictures into arguments of the model's forward pass; they are in the order of their placeholders.

        Raises `GridMismatchError` where a picture has other patches than its placeholders stand for.
        """

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the processor's settings into a policy's folder."""
