"""Load a policy: a folder in Hugging Face format (config.json, *.safetensors, tokenizer files) with checksums.

A folder may hold an adapter instead of weights (`quartet.policy.adapter`), which is merged with its base. Before
loading, changed files are detected by their checksums. Damaged files raise `CheckpointError`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from quartet.errors import CheckpointError
from quartet.on_progress import no_progress
from quartet.policy.adapter import is_adapter, read_config
from quartet.policy.files import check_policy, raising_checkpoint_errors
from quartet.policy.kind.base import PictureProcessor
from quartet.policy.kind.find import kind_of, load_pictures
from quartet.policy.library_progress import reporting
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.policy.weights import read_weights, swap_weights, weight_files

_LOADING = Lock()
"""Lock that lets one thread load a model at a time. `transformers` patches its own classes while it loads a model; if
two threads loaded at once, the classes could stay patched and tied weights untied."""


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

    Raises `CheckpointError`, and no other error, if a file is missing, damaged or does not fit the model.
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
    transformers_logging.disable_progress_bar()
    with raising_checkpoint_errors(f"cannot load the model in {folder}"), _LOADING, reporting(on_progress):
        loaded: Any = kind_of(folder).load(
            folder,
            dtype=torch.float32,
            attn_implementation="sdpa",
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
        model, report = loaded
        if names := unread_weights(report):
            raise CheckpointError(
                f"the weights in {folder} do not fit its config.json: {', '.join(names[:5])} missing or of another "
                "shape",
                "copy the folder again from its source: it mixes two models or was written only in part",
            )
        with torch.inference_mode():
            model.eval()(input_ids=torch.zeros(1, 2, dtype=torch.long), use_cache=False)
    return model


def unread_weights(report: Mapping[str, Any]) -> list[str]:
    """Return the names of the weights that `transformers` has not read, by its loading report, but drawn at random."""
    return sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
