"""Determination of the kind of model in a policy's folder."""

from pathlib import Path

import msgspec

from quartet.policy.files import raising_checkpoint_errors
from quartet.policy.kind.base import ModelKind, PictureProcessor
from quartet.policy.kind.qwen_vl import MODEL_TYPES, QwenVL
from quartet.policy.kind.text import TextModel


class _Config(msgspec.Struct):
    """Field of a policy's config.json that names the architecture."""

    model_type: str = ""


def kind_of(folder: Path) -> ModelKind:
    """Return the kind of the policy in `folder`. Raises `CheckpointError` for a damaged config.json."""
    file = folder / "config.json"
    with raising_checkpoint_errors(f"cannot read {file}"):
        config = msgspec.json.decode(file.read_bytes(), type=_Config)
    return QwenVL() if config.model_type in MODEL_TYPES else TextModel()


def load_pictures(folder: Path) -> PictureProcessor | None:
    """Return the picture processor of the policy in `folder`; None if the model reads only text.

    Raises `CheckpointError` if files are missing or damaged.
    """
    with raising_checkpoint_errors(f"cannot load the image processor in {folder}"):
        return kind_of(folder).pictures(folder)
