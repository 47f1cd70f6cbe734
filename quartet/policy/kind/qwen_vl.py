"""Common part of Qwen2.5-VL and Qwen3-VL: a picture is a grid of patches, each placeholder token is for 2 x 2 of them,
and positions have three dimensions.

Sizes and patches are computed by transformers' own image processor. The grid and the number of placeholders follow from
the picture's size alone. Source: arXiv 2409.12191 (positions), 2502.13923, 2511.21631.
"""

import hashlib
import inspect
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from quartet.errors import GridMismatchError, PictureTooLargeError, PlaceholderMismatchError, SetupError
from quartet.policy.kind.base import PictureProcessor, VisionKind
from quartet.policy.kind.encoded import decoded, opened
from quartet.types import Media, Prompt

if TYPE_CHECKING:
    import torch

ENCODER_OUTPUTS = "mm_encoder_outputs"
"""Argument of the models' forward passes that takes the outputs of the vision tower."""


class QwenVL(VisionKind):
    """Model with a vision tower, whose outputs are inputs of a Qwen decoder."""

    def load(self, folder: Path, **options: Any) -> Any:
        from transformers import AutoModelForImageTextToText

        return AutoModelForImageTextToText.from_pretrained(str(folder), **options)

    def pictures(self, folder: Path) -> "QwenPictures":
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

        tokens = msgspec.json.decode((folder / "config.json").read_bytes(), type=PictureTokens)
        return QwenPictures(Qwen2VLImageProcessorPil.from_pretrained(str(folder), local_files_only=True), tokens)

    def tower(self, model: Any) -> "torch.nn.Module":
        return model.base_model.visual

    def tower_output(self, model: Any, inputs: "dict[str, torch.Tensor]") -> Any:
        """Run the vision tower; the result holds its outputs by picture."""
        require_encoder_outputs(type(model.base_model))
        return model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"], return_dict=True)


def encoder_outputs(**outputs: Any) -> dict[str, Any]:
    """Return the argument of a forward pass with the outputs of the vision tower.

    They are not in a container of `transformers`, in which FSDP finds tensors: on a rank whose rows have pictures, a
    model's backward pass would then end earlier than on the others, and ranks with two models would wait for ever.
    """
    return {ENCODER_OUTPUTS: {"image": SimpleNamespace(**outputs)}}


@cache
def require_encoder_outputs(model_class: type) -> None:
    """Raise `SetupError` if this `transformers` ignores the outputs of a vision tower that ran separately."""
    if ENCODER_OUTPUTS not in inspect.signature(model_class.forward).parameters:
        import transformers

        raise SetupError(
            f"{model_class.__name__} of transformers {transformers.__version__} has no argument {ENCODER_OUTPUTS!r}",
            "pip install --upgrade transformers",
        )


class PictureTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Ids of the tokens around pictures and in place of pictures, with their names in config.json."""

    vision_start_token_id: int
    image_token_id: int
    vision_end_token_id: int
    video_token_id: int


class QwenPictures(PictureProcessor):
    """Picture processor that uses transformers' `Qwen2VLImageProcessorPil`."""

    def __init__(self, processor: Any, tokens: PictureTokens) -> None:
        self._processor, self._tokens = processor, tokens
        self._merge = int(processor.merge_size)
        self.never_sampled = [tokens.image_token_id, tokens.video_token_id]
        self.fingerprint = _fingerprint(processor)

    def prompt(self, picture: bytes) -> Prompt:
        grid = self.grid(*opened(picture).size)
        count, patch = math.prod(grid) // self._merge**2, self._processor.patch_size
        ids = [self._tokens.vision_start_token_id, *[self._tokens.image_token_id] * count]
        shown = Media(
            content_hash=hashlib.sha256(picture).hexdigest(),
            offset=1,
            num_placeholders=count,
            grid=grid,
            resized=(grid[2] * patch, grid[1] * patch),
            processor=self.fingerprint,
        )
        return Prompt([*ids, self._tokens.vision_end_token_id], [shown], {shown.content_hash: picture})

    def positions(self, ids_L: np.ndarray, media: Sequence[Media]) -> np.ndarray:
        self._check(ids_L, media)
        positions_3L, position, end = np.empty((3, len(ids_L)), dtype=np.int64), 0, 0
        for one in media:
            height, width = one.grid[1] // self._merge, one.grid[2] // self._merge
            text = one.offset - end
            positions_3L[:, end : one.offset] = position + np.arange(text)
            position, end = position + text, one.offset + one.num_placeholders
            places = np.indices((one.grid[0], height, width)).reshape(3, -1)
            positions_3L[:, one.offset : end] = position + places
            position += max(height, width)
        positions_3L[:, end:] = position + np.arange(len(ids_L) - end)
        return positions_3L

    def inputs(self, shown: Sequence[tuple[Media, bytes]]) -> dict[str, "torch.Tensor"]:
        if not shown:
            return {}
        found = self._processor([decoded(picture) for _, picture in shown], return_tensors="pt")
        for (one, _), grid in zip(shown, found["image_grid_thw"].tolist(), strict=True):
            if (tuple(grid), self.fingerprint) != (one.grid, one.processor):
                raise GridMismatchError(
                    f"picture {one.content_hash} has the patches {tuple(grid)} by processor {self.fingerprint}, and "
                    f"its placeholders stand for {one.grid} by {one.processor}",
                    "restore the image processor's settings in the policy's folder: a run must not change them",
                )
        return {"pixel_values": found["pixel_values"], "image_grid_thw": found["image_grid_thw"]}

    def save(self, folder: Path) -> None:
        self._processor.save_pretrained(str(folder))

    def grid(self, width: int, height: int) -> tuple[int, int, int]:
        """Return the number of patches along time, height and width of a picture by its size in pixels.

        Raises `PictureTooLargeError`.
        """
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        patch, size = self._processor.patch_size, self._processor.size
        try:
            rows, columns = smart_resize(
                height, width, patch * self._merge, size["shortest_edge"], size["longest_edge"]
            )
        except ValueError as error:
            raise PictureTooLargeError(f"a picture has {width} x {height} pixels: {error}") from error
        return 1, rows // patch, columns // patch

    def _check(self, ids_L: np.ndarray, media: Sequence[Media]) -> None:
        stands_L = np.zeros(len(ids_L), dtype=bool)
        for one in media:
            stands_L[one.offset : one.offset + one.num_placeholders] = True
            if one.num_placeholders != math.prod(one.grid) // self._merge**2:
                raise PlaceholderMismatchError(
                    f"picture {one.content_hash} has {one.num_placeholders} placeholders, which do not match its grid "
                    f"of patches {one.grid}"
                )
        found_L = np.asarray(ids_L) == self._tokens.image_token_id
        if not np.array_equal(found_L, stands_L):
            place = int(np.flatnonzero(found_L != stands_L)[0])
            raise PlaceholderMismatchError(
                f"a sequence has {int(found_L.sum())} placeholders of pictures, but its {len(media)} pictures need "
                f"{int(stands_L.sum())}; the first difference is at token {place}",
                "let the renderer write both: a prompt may have placeholders only for its pictures",
            )


def _fingerprint(processor: Any) -> str:
    """Return a hash of the settings that determine grids and patches."""
    names = ("patch_size", "merge_size", "temporal_patch_size", "resample", "rescale_factor", "image_mean", "image_std")
    settings = {name: getattr(processor, name) for name in names} | {
        "size": [processor.size["shortest_edge"], processor.size["longest_edge"]]
    }
    text = repr(sorted((name, _plain(value)) for name, value in settings.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """Return a value as JSON would hold it (tuples as lists, enums as numbers).

    So a processor that was saved and loaded has the same fingerprint.
    """
    if isinstance(value, list | tuple):
        return [float(one) for one in value]
    return int(value) if isinstance(value, int) else value
