"""Load a model by `transformers`, with all of its weights from files.

`transformers` draws weights that are not in the files at random, with a warning; here they raise an error.
"""

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from quartet.errors import CheckpointError
from quartet.policy.files import raising_checkpoint_errors
from quartet.policy.kind.find import kind_of

_LOADING = Lock()
"""Lock that lets one thread load a model at a time. `transformers` patches its own classes while it loads a model; if
two threads loaded at once, the classes could stay patched and tied weights untied."""


def load_whole(folder: Path, dtype: torch.dtype, *, trust_remote_code: bool = False) -> PreTrainedModel:
    """Load the model in `folder`, with sdpa attention, from disk only.

    Raises `CheckpointError` if files are damaged or lack weights of the model.
    """
    transformers_logging.disable_progress_bar()
    with raising_checkpoint_errors(f"cannot load the model in {folder}"), _LOADING:
        loaded: Any = kind_of(folder).load(
            folder,
            dtype=dtype,
            attn_implementation="sdpa",
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
    model, report = loaded
    if names := unread_weights(report):
        raise CheckpointError(
            f"the weights in {folder} do not fit its config.json: {', '.join(names[:5])} missing or of another shape",
            "copy the folder again from its source: it mixes two models or was written only in part",
        )
    return model


def unread_weights(report: Mapping[str, Any]) -> list[str]:
    """Return the names of the weights that `transformers` has not read, by its loading report, but drawn at random."""
    return sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
