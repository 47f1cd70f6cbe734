"""Interfaces of a kind of model, and of a model's processing of pictures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from quartet.types import Media, Prompt

if TYPE_CHECKING:  # a rollout worker needs only the sizes of pictures and must not import torch
    from pathlib import Path

    import torch


class ModelKind(ABC):
    """Family of model architectures."""

    reads_pictures: ClassVar[bool] = False
    actions: ClassVar[str] = "environment"
    """Format of actions (`rollout.actions`) that models of this kind, or agents made from them, were trained on."""

    @abstractmethod
    def load(self, folder: Path, **options: Any) -> Any:
        """Return the model in `folder`, with its output matrix. `options` are passed to `from_pretrained`."""

    @abstractmethod
    def pictures(self, folder: Path) -> PictureProcessor | None:
        """Return the picture processor of the policy in `folder`; None for a model that reads only text."""

    @property
    def decoder_prefix(self) -> str:
        """Beginning of the names of the decoder's parameters; files of a decoder that was saved alone lack it. Empty if
        the files always have it, or if it is not known."""
        return ""

    @property
    def converts_weights(self) -> bool:
        """True if `transformers` computes parameters from the tensors of files, as it fuses the weights of experts."""
        return False

    def parameter_name(self, stored: str) -> str:
        """Return the name of the model's parameter whose weights a file stores under the name `stored`."""
        return stored


class VisionKind(ModelKind):
    """Family of models with a vision tower, whose outputs are inputs of a decoder.

    The tower and the decoder can run separately, so that the outputs for a picture can be used more than once.
    """

    reads_pictures = True
    model_type: ClassVar[str]
    """Name of the architecture in config.json."""

    @abstractmethod
    def tower(self, model: Any) -> torch.nn.Module:
        """Return the vision tower of a model."""

    @abstractmethod
    def features(self, model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Run the vision tower on `PictureProcessor.inputs`.

        Return one vector per placeholder for each place of the decoder that reads them: `[K, N, D]`.
        """

    @abstractmethod
    def arguments(self, features: Sequence[torch.Tensor]) -> dict[str, Any]:
        """Return the arguments of the model's forward pass that give it the features `[K, n, D]` of the placeholders
        among its tokens."""


class PictureProcessor(ABC):
    """Conversion of pictures to a model's input: placeholder token ids, positions and patches."""

    fingerprint: str
    """Hash of all settings that determine grids and patches; recorded with every picture."""
    marks: ClassVar[tuple[int, int]] = (1, 1)
    """Number of tokens before and after the placeholders of a picture that belong to it."""
    never_sampled: list[int]
    """Token ids that stand for pictures and must not be in a response."""

    @abstractmethod
    def prompt(self, picture: bytes) -> Prompt:
        """Return the token ids that stand for an encoded picture. Only the picture's header is read.

        Raises `PictureTooLargeError`, and `EnvError` if the data are not a picture.
        """

    @abstractmethod
    def positions(self, ids_L: np.ndarray, media: Sequence[Media]) -> np.ndarray:
        """Return the positions `[3, L]` (time, height, width) of a sequence's tokens.

        Raises `PlaceholderMismatchError` if the sequence's placeholders do not match `media`.
        """

    @abstractmethod
    def inputs(self, shown: Sequence[tuple[Media, bytes]]) -> dict[str, torch.Tensor]:
        """Decode pictures, given in the order of their placeholders, and return the vision tower's arguments.

        Raises `GridMismatchError` if the patches of a picture do not match its placeholders.
        """

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the processor's settings into a policy's folder."""
