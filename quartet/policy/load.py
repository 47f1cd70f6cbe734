"""Policies on disk: a folder in Hugging Face format (config.json, *.safetensors, tokenizer files) with checksums.

Weights are read from safetensors only; a pickle is never opened. A folder appears complete or not at all, and what was
changed in it since is noticed before it is loaded. Damage of any kind is a `CheckpointError`.
"""

import copy
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from quartet.errors import CheckpointError
from quartet.files.disk import usable_output
from quartet.files.whole_folder import nothing, whole_folder
from quartet.policy.files import check_policy, raising_checkpoint_errors
from quartet.policy.kind.base import PictureProcessor
from quartet.policy.kind.find import kind_of, load_pictures
from quartet.policy.library_progress import reporting
from quartet.policy.tokenizer_files import load_tokenizer

SHARD_SIZE = "500MB"
"""A file of weights is written within a heartbeat: no other Python code of the process runs meanwhile."""

_LOADING = Lock()
"""`transformers` patches its own classes while it loads a model: of two threads that load at once, one would leave them
patched, and tied weights untied, for as long as the process lives."""


class LoadedPolicy(NamedTuple):
    """A language model (float32, sdpa attention, eval mode), its tokenizer, and what it makes of pictures."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    pictures: PictureProcessor | None = None
    """None for a model that reads text alone."""


def load_policy(
    path: str | Path, *, trust_remote_code: bool = False, on_progress: Callable[[], None] = nothing
) -> LoadedPolicy:
    """Load any language model in Hugging Face format, from disk only.

    Raises `CheckpointError` when something is missing, damaged or does not fit the model, never another error for it.
    """
    folder = Path(path)
    model = load_model(folder, trust_remote_code=trust_remote_code, on_progress=on_progress)
    return LoadedPolicy(model, load_tokenizer(folder, trust_remote_code=trust_remote_code), load_pictures(folder))


def load_model(
    folder: Path, *, trust_remote_code: bool = False, on_progress: Callable[[], None] = nothing
) -> PreTrainedModel:
    """Load the weights alone, in float32, and prove that the model computes. Raises `CheckpointError` like
    `load_policy`."""
    weight_files(folder)
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} has no config.json", "it is no model in Hugging Face format, or a damaged one")
    check_policy(folder, on_progress=on_progress)
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
        if report["missing_keys"] or report["mismatched_keys"]:
            names = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
            raise CheckpointError(
                f"the weights in {folder} do not fit its config.json: {', '.join(names[:5])} missing or of another "
                "shape",
                "the folder mixes two models or was written only in part; copy it again from its source",
            )
        with torch.inference_mode():
            model.eval()(input_ids=torch.zeros(1, 2, dtype=torch.long), use_cache=False)
    return model


def make_place(folder: Path) -> None:
    """Make sure that a policy can be written to `folder`; whoever trains for hours asks before.

    Raises `CheckpointError` when it holds something that is no policy, `ConfigError` or `OSError` where none can be.
    """
    _refuse_foreign(folder)
    with usable_output(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryDirectory(dir=folder.parent).cleanup()


def _refuse_foreign(folder: Path) -> None:
    if folder.exists() and not (folder / "config.json").is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder} exists and is no policy", "choose another folder; nothing was overwritten")


def save_policy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    *,
    pictures: PictureProcessor | None = None,
) -> None:
    """Write a policy so that `folder` is complete as soon as it exists; an earlier policy there is replaced.

    Raises `CheckpointError` when `folder` holds something that is no policy.
    """
    folder = Path(folder)
    _refuse_foreign(folder)
    with whole_folder(folder, point="policy") as fresh:
        write_policy(model, tokenizer, fresh, pictures=pictures)


def write_policy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    on_progress: Callable[[], None] = nothing,
    *,
    pictures: PictureProcessor | None = None,
) -> None:
    """Write weights, tokenizer and image processor; `on_progress` is called after each file of weights."""
    transformers_logging.disable_progress_bar()
    with raising_os_errors(folder), reporting(on_progress):
        model.save_pretrained(str(folder), max_shard_size=SHARD_SIZE)
        tokenizer.save_pretrained(str(folder))
        if pictures is not None:
            pictures.save(folder)
    for file in weight_files(folder):  # written for the owner only, unlike the rest
        file.chmod((folder / "config.json").stat().st_mode)


@contextmanager
def raising_os_errors(path: Path) -> Iterator[None]:
    """While `path` is written: a full disk that a library in Rust tells as a text becomes the `OSError` that it is.

    safetensors raises its own error for it, tokenizers a bare `Exception`; anything without a system error passes.
    """
    try:
        yield
    except Exception as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        code = int(number[1])
        raise OSError(code, os.strerror(code), str(path)) from error


def read_weights(path: str | Path) -> dict[str, torch.Tensor]:
    """All tensors of a policy folder by name. Tied tensors are stored once, so one of their names may be absent.

    Raises `CheckpointError` that names the damaged or missing file, of the whole policy.
    """
    files, weights = weight_files(Path(path)), dict[str, torch.Tensor]()
    check_policy(Path(path))
    for file in files:
        with raising_checkpoint_errors(f"{file} is damaged"):
            weights |= load_file(file)
    return weights


def weight_shapes(path: str | Path) -> dict[str, list[int]]:
    """Shape of every tensor of a policy folder by name; reads the files' headers alone, which also hold their lengths.

    Raises `CheckpointError` that names the damaged or missing file.
    """
    shapes: dict[str, list[int]] = {}
    for file in weight_files(Path(path)):
        with raising_checkpoint_errors(f"{file} is damaged"), safe_open(file, framework="pt") as opened:
            shapes |= {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118
    return shapes


@torch.no_grad()
def swap_weights(model: PreTrainedModel, weights: dict[str, torch.Tensor]) -> None:
    """Copy `weights` into the parameters of `model`, in place; everything is checked before the first copy.

    Raises `CheckpointError` for a missing tensor or another shape; the model is unchanged then.
    """
    for parameter, stored in _matched(model, weights):
        parameter.copy_(stored)


def with_weights(model: PreTrainedModel, weights: dict[str, torch.Tensor]) -> PreTrainedModel:
    """A copy of `model` that holds `weights`, in the model's type and on its device, and none of its parameters.

    Raises `CheckpointError` like `swap_weights`.
    """
    # What the copy is made of where the model has this parameter, under all its names.
    instead = {
        id(parameter): torch.nn.Parameter(stored.to(parameter), requires_grad=False)
        for parameter, stored in _matched(model, weights)
    }
    return copy.deepcopy(model, instead)


def _matched(model: PreTrainedModel, weights: dict[str, torch.Tensor]) -> list[tuple[torch.nn.Parameter, torch.Tensor]]:
    """Each parameter of the model with its tensor. Tied parameters are one, stored under one of their names."""
    names_of: dict[torch.nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names_of.setdefault(parameter, []).append(name)
    pairs: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
    for parameter, names in names_of.items():
        stored = next((weights[name] for name in names if name in weights), None)
        if stored is None or stored.shape != parameter.shape:
            found = "missing" if stored is None else f"of shape {tuple(stored.shape)}"
            raise CheckpointError(f"{names[0]} is {found}, the model wants {tuple(parameter.shape)}")
        pairs.append((parameter, stored))
    return pairs


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that hold a policy's weights. Raises `CheckpointError` when there are none."""
    if not folder.is_dir():
        raise CheckpointError(f"no policy at {folder}", "check model.path; `quartet sft` or `make policy` makes one")
    files = sorted(folder.glob("model*.safetensors"))
    if files:
        return files
    pickles = [*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")]
    if pickles:
        raise CheckpointError(
            f"{pickles[0]} is a pickle, which could run any code when loaded", "convert the weights to safetensors"
        )
    raise CheckpointError(f"no model*.safetensors in {folder}", "the folder is no policy or was written only in part")
