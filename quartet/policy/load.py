"""Load a policy: a folder in Hugging Face format (config.json, *.safetensors, tokenizer files) with checksums.

A folder may hold an adapter instead of weights (`quartet.policy.adapter`), which is merged with its base. Before
loading, changed files are detected by their checksums. Damaged files raise `CheckpointError`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from quartet.errors import CheckpointError
from quartet.on_progress import no_progress
from quartet.policy.adapter import is_adapter, read_config
from quartet.policy.files import check_policy, raising_checkpoint_errors
from quartet.policy.kind.base import PictureProcessor
from quartet.policy.kind.find import load_pictures
from quartet.policy.library_progress import reporting
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.policy.weights import read_weights, swap_weights, weight_files
from quartet.policy.whole_load import load_whole


class LoadedPolicy(NamedTuple):
    """Language model (float32, sdpa attention, eval mode), its tokenizer, and its picture processor."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    pictures: PictureProcessor | None = None
    """None for a model that reads only text."""


def load_policy(
    path: str | Path, *, trust_remote_code: bool = False, on_progress: Callable[[], None] = no_progress
) -> LoadedPolicy:
    """Load any language model in Hugging Face format, from disk only.

    Raises `CheckpointError`, and no other error, if a file is missing, damaged or does not fit the model, and
    `OutOfMemoryError` if memory runs out.
    """
    folder = Path(path)
    model = load_model(folder, trust_remote_code=trust_remote_code, on_progress=on_progress)
    return LoadedPolicy(model, load_tokenizer(folder, trust_remote_code=trust_remote_code), load_pictures(folder))


def load_model(
    folder: Path, *, trust_remote_code: bool = False, on_progress: Callable[[], None] = no_progress
) -> PreTrainedModel:
    """Load the model without its tokenizer, in float32, and verify that its forward pass runs.

    Raises `CheckpointError` like `load_policy`.
    """
    weight_files(folder)
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} has no config.json", "give a folder with a model in Hugging Face format")
    check_policy(folder, on_progress=on_progress)
    if is_adapter(folder):
        base = Path(read_config(folder).base_model_name_or_path)
        model = load_model(base, trust_remote_code=trust_remote_code, on_progress=on_progress)
        swap_weights(model, read_weights(folder))
        return model
    with raising_checkpoint_errors(f"cannot load the model in {folder}"), reporting(on_progress):
        model = load_whole(folder, torch.float32, trust_remote_code=trust_remote_code)
        with torch.inference_mode():
            model.eval()(input_ids=torch.zeros(1, 2, dtype=torch.long), use_cache=False)
    return model
