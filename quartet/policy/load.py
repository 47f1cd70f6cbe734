"""Policies on disk: a folder in Hugging Face format (config.json, *.safetensors, tokenizer files) with checksums.

A folder may hold an adapter instead of weights (`quartet.policy.adapter`), which is merged with its base. Weights are
read from safetensors only; pickles are not opened. A folder is written atomically. Before loading, changed files are
detected by their checksums. Damaged files raise `CheckpointError`.
"""

import copy
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from quartet.errors import CheckpointError, ConfigError
from quartet.files.disk import usable_output
from quartet.files.whole_folder import whole_folder
from quartet.on_progress import no_progress
from quartet.policy.adapter import ADAPTER_FOLDER, ADAPTER_WEIGHTS, is_adapter, merged, read_config
from quartet.policy.files import check_policy, raising_checkpoint_errors
from quartet.policy.kind.base import PictureProcessor
from quartet.policy.kind.find import kind_of, load_pictures
from quartet.policy.library_progress import reporting
from quartet.policy.lora import has_adapter, write_adapter
from quartet.policy.tokenizer_files import load_tokenizer

SHARD_SIZE = "500MB"
"""Maximum size of a file of weights. The trainer sends a heartbeat after each file, so one file must be written within
`runtime.heartbeat_timeout_seconds`."""

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

    Of a model with an adapter, only the adapter is written.
    """
    transformers_logging.disable_progress_bar()
    with raising_os_errors(folder), reporting(on_progress):
        if has_adapter(model):
            model.config.save_pretrained(str(folder))
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


def read_weights(path: str | Path) -> dict[str, torch.Tensor]:
    """Return the weights of the policy in a folder, by the names of the model's parameters. Tied tensors are stored
    under one of their names only.

    An adapter is merged with its base. Raises `CheckpointError` like `stored_tensors`.
    """
    tensors = stored_tensors(path)
    if not is_adapter(Path(path)):
        kind = kind_of(Path(path))
        is_decoder_alone = not any(name.startswith(kind.decoder_prefix) for name in tensors)
        prefix = kind.decoder_prefix if is_decoder_alone else ""
        return {prefix + kind.parameter_name(name): tensor for name, tensor in tensors.items()}
    config = read_config(Path(path))
    return merged(_base_weights(config.base_model_name_or_path), tensors, config)


@cache
def _base_weights(path: str) -> dict[str, torch.Tensor]:
    """Return the weights of an adapter's base. They stay in memory, since an engine loads an adapter per version."""
    return read_weights(path)


def stored_tensors(path: str | Path) -> dict[str, torch.Tensor]:
    """Return all tensors in a policy's files, by name; of an adapter only its factors.

    Raises `CheckpointError`, which names the file, if any file of the policy is damaged or missing.
    """
    files, weights = weight_files(Path(path)), dict[str, torch.Tensor]()
    check_policy(Path(path))
    for file in files:
        with raising_checkpoint_errors(f"{file} is damaged"):
            weights |= load_file(file)
    return weights


def weight_shapes(path: str | Path) -> dict[str, list[int]]:
    """Return the shapes of all tensors in a policy's folder, by name; only the files' headers are read.

    Raises `CheckpointError`, which names the file, if a file is missing, damaged or too short.
    """
    shapes: dict[str, list[int]] = {}
    for file in weight_files(Path(path)):
        with raising_checkpoint_errors(f"{file} is damaged"), safe_open(file, framework="pt") as opened:
            shapes |= {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118
    return shapes


def weights_bytes(path: str | Path) -> int:
    """Return the size in bytes of a policy's files of weights. Raises `CheckpointError` if there are none."""
    return sum(file.stat().st_size for file in weight_files(Path(path)))


@torch.no_grad()
def swap_weights(model: PreTrainedModel, weights: dict[str, torch.Tensor]) -> None:
    """Copy `weights` into the parameters of `model`, in place.

    Raises `CheckpointError`, before the first copy, if a tensor is missing or has another shape.
    """
    for parameter, stored in _matched(model, weights):
        parameter.copy_(stored)


def with_weights(model: PreTrainedModel, weights: dict[str, torch.Tensor]) -> PreTrainedModel:
    """Return a copy of `model` with `weights`, in the model's dtype and on its device; it shares no parameter with it.

    Raises `CheckpointError` like `swap_weights`.
    """
    # The copy gets these tensors in place of the model's parameters, which are therefore not copied.
    instead = {
        id(parameter): torch.nn.Parameter(stored.to(parameter), requires_grad=False)
        for parameter, stored in _matched(model, weights)
    }
    return copy.deepcopy(model, instead)


def cast_weights(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Change the dtype of the weights in place.

    Buffers keep theirs, unlike with `Module.to`: frequencies of rotary embeddings that are rounded to bfloat16 turn
    tokens at position 1000 by almost two radians too far.
    """
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def cast_copy(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """Return a copy of `model` whose weights have another dtype, as after `cast_weights`."""
    instead = {
        id(parameter): torch.nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
        for parameter in model.parameters()
    }
    return copy.deepcopy(model, instead)


def _matched(model: PreTrainedModel, weights: dict[str, torch.Tensor]) -> list[tuple[torch.nn.Parameter, torch.Tensor]]:
    """Return each parameter of the model with its tensor in `weights`. Tied parameters count as one, which is stored
    under any of their names."""
    names_of: dict[torch.nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names_of.setdefault(parameter, []).append(name)
    pairs: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
    for parameter, names in names_of.items():
        stored = next((weights[name] for name in names if name in weights), None)
        if stored is None or stored.shape != parameter.shape:
            found = "missing" if stored is None else f"of shape {tuple(stored.shape)}"
            raise CheckpointError(f"{names[0]} is {found}, but the model needs shape {tuple(parameter.shape)}")
        pairs.append((parameter, stored))
    return pairs


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files that hold a policy's weights. Raises `CheckpointError` if there are none."""
    if not folder.is_dir():
        raise CheckpointError(f"no policy at {folder}", "check model.path; `quartet sft` or `make policy` makes one")
    files = sorted(folder.glob(ADAPTER_WEIGHTS if is_adapter(folder) else "model*.safetensors"))
    if files:
        return files
    pickles = [*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")]
    if pickles:
        raise CheckpointError(
            f"{pickles[0]} is a pickle, which could run any code when loaded", "convert the weights to safetensors"
        )
    raise CheckpointError(f"no model*.safetensors in {folder}", "give the folder of a policy, or copy this one again")
