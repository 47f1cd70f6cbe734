"""Write a policy to a folder in Hugging Face format, atomically."""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from quartet.errors import CheckpointError, ConfigError
from quartet.files.disk import usable_output
from quartet.files.whole_folder import whole_folder
from quartet.on_progress import no_progress
from quartet.policy.adapter import ADAPTER_FOLDER
from quartet.policy.kind.base import PictureProcessor
from quartet.policy.library_progress import reporting
from quartet.policy.lora import has_adapter, write_adapter
from quartet.policy.weights import weight_files

SHARD_SIZE = "500MB"
"""Maximum size of a file of weights. The trainer sends a heartbeat after each file, so one file must be written within
`runtime.heartbeat_timeout_seconds`."""


def make_place(folder: Path) -> None:
    """Check that a policy can be written to `folder`. Call this before a long training.

    Raises `CheckpointError` if `folder` holds something other than a policy, and `ConfigError` or `OSError` if it
    cannot be written.
    """
    if folder.resolve() == Path.cwd():
        raise ConfigError(f"{folder} is the current folder, which cannot be replaced", "name a folder in it")
    _refuse_foreign(folder)
    with usable_output(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryDirectory(dir=folder.parent).cleanup()


def _refuse_foreign(folder: Path) -> None:
    if folder.exists() and not (folder.is_dir() and (_holds_only_a_policy(folder) or not any(folder.iterdir()))):
        raise CheckpointError(
            f"{folder} exists and holds something other than a policy", "choose another folder; nothing was overwritten"
        )


def _holds_only_a_policy(folder: Path) -> bool:
    """Return whether the folder has a model's files and neither hidden ones nor folders of other programs."""
    named = [one for one in folder.iterdir() if one.is_dir() or one.name.startswith(".")]
    foreign = any(one.name != ADAPTER_FOLDER for one in named)
    return not foreign and (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def save_policy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    *,
    pictures: PictureProcessor | None = None,
) -> None:
    """Write a policy to `folder` atomically, replacing an earlier policy there.

    Raises `CheckpointError` if `folder` holds something other than a policy.
    """
    folder = Path(folder)
    _refuse_foreign(folder)
    with whole_folder(folder, point="policy") as fresh:
        write_policy(model, tokenizer, fresh, pictures=pictures)


def write_policy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    on_progress: Callable[[], None] = no_progress,
    *,
    pictures: PictureProcessor | None = None,
) -> None:
    """Write weights, tokenizer and image processor; call `on_progress` after each file of weights.

    Of a model with an adapter, only the adapter is written, beside both configurations.
    """
    transformers_logging.disable_progress_bar()
    with raising_os_errors(folder), reporting(on_progress):
        if has_adapter(model):
            model.config.save_pretrained(str(folder))
            if (generation := model.generation_config) is not None:
                generation.save_pretrained(str(folder))
            write_adapter(model, folder)
        else:
            model.save_pretrained(str(folder), max_shard_size=SHARD_SIZE)
        tokenizer.save_pretrained(str(folder))
        if pictures is not None:
            pictures.save(folder)
    for file in weight_files(folder):  # safetensors makes them readable by the owner only, unlike the other files
        file.chmod((folder / "config.json").stat().st_mode)


@contextmanager
def raising_os_errors(path: Path) -> Iterator[None]:
    """Convert system errors, such as a full disk, that a Rust library raises while it writes `path`, to `OSError`.

    safetensors raises its own error type, tokenizers a bare `Exception`; both name the system error in their text.
    Other errors are raised unchanged.
    """
    try:
        yield
    except Exception as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        code = int(number[1])
        raise OSError(code, os.strerror(code), str(path)) from error
