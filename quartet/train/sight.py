"""The pictures of training sequences, decoded late: those of one microbatch, just before its forward pass.

The pixels are arguments of that pass and belong to nothing else, so they are freed with it: after a backward pass at
the latest. What a microbatch holds until then is its `media`.
"""

from collections.abc import Callable, Iterable

import numpy as np
import torch

from quartet.errors import PictureMissingError
from quartet.ledger import Ledger
from quartet.ledger.blobs import DamagedBlobError
from quartet.policy.kind.base import PictureProcessor
from quartet.policy.never_sampled import without_tokens
from quartet.train.microbatch import Microbatch
from quartet.train.packing import Branch

LoadPictures = Callable[[Iterable[str]], dict[str, bytes]]
"""From content hashes to encoded pictures. Raises `DamagedBlobError`."""


class Sight:
    """Inputs of a model that reads pictures, besides token ids."""

    def __init__(self, processor: PictureProcessor, load: LoadPictures) -> None:
        self._processor, self._load = processor, load

    def positions(self, branch: Branch) -> np.ndarray:
        """Return `[3, L]`. Raises `PlaceholderMismatchError`."""
        return self._processor.positions(branch.ids_L, branch.media)

    def inputs(self, microbatch: Microbatch) -> dict[str, torch.Tensor]:
        """Return the arguments of the forward pass that show the microbatch's pictures; none where it has none.

        Raises `PictureMissingError` and `GridMismatchError`.
        """
        try:
            pictures = self._load({one.content_hash for one in microbatch.media}) if microbatch.media else {}
        except DamagedBlobError as error:
            raise PictureMissingError(
                f"a picture that is trained on cannot be read: {error.what}",
                "`quartet ledger check` lists damaged blobs; the disk budget drops pictures of trained rollouts",
            ) from error
        inputs = self._processor.inputs([(one, pictures[one.content_hash]) for one in microbatch.media])
        return {name: value.to(microbatch.ids_BL.device) for name, value in inputs.items()}

    def without_placeholders(self, logits_TV: torch.Tensor) -> torch.Tensor:
        """Return the logits without the tokens that stand for pictures, which an engine never draws either."""
        return without_tokens(logits_TV, self._processor.never_sampled)


def sight_of(processor: PictureProcessor | None, ledger: Ledger) -> Sight | None:
    """Return a policy's sight, with the ledger's pictures; None where the policy reads text alone."""
    return Sight(processor, ledger.store.load_pictures) if processor else None
