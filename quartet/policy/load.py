"""Policies on disk: a folder in Hugging Face format (config.json, *.safetensors, tokenizer files).

Weights are read from safetensors only; a pickle is never opened. A folder appears complete or not at all.
"""

import copy
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from quartet.crash_points import crash_point
from quartet.data.disk import usable_output
from quartet.errors import CheckpointError
from quartet.policy.tokenizer_files import load_advice, load_tokenizer

_LOADING = Lock()
"""`transformers` patches its own classes while it loads a model: of two threads that load at once, one would leave them
patched, and tied weights untied, for as long as the process lives."""


class LoadedPolicy(NamedTuple):
    """A causal language model (float32, sdpa attention, eval mode) and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def load_policy(path: str | Path, *, trust_remote_code: bool = False) -> LoadedPolicy:
    """Load any causal language model in Hugging Face format, from disk only.

    Raises `CheckpointError` that names the file when something is missing, damaged or does not fit the model.
    """
    folder = Path(path)
    model = load_model(folder, trust_remote_code=trust_remote_code)
    return LoadedPolicy(model, load_tokenizer(folder, trust_remote_code=trust_remote_code))


def load_model(folder: Path, *, trust_remote_code: bool = False) -> PreTrainedModel:
    """The weights alone, in float32. Raises `CheckpointError` like `load_policy`."""
    weight_files(folder)
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} has no config.json", "it is no model in Hugging Face format, or a damaged one")
    transformers_logging.disable_progress_bar()
    try:
        with _LOADING:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                str(folder),
                dtype=torch.float32,
                attn_implementation="sdpa",
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"cannot load the model in {folder}: {error}", load_advice(error)) from error
    model, report = loaded
    if report["missing_keys"] or report["mismatched_keys"]:
        names = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
        raise CheckpointError(
            f"the weights in {folder} do not fit its config.json: {', '.join(names[:5])} missing or of another shape",
            "the folder mixes two models or was written only in part; copy it again from its source",
        )
    return model.eval()


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


def save_policy(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: str | Path) -> None:
    """Write a policy so that `folder` is complete as soon as it exists; an earlier policy there is replaced.

    Raises `CheckpointError` when `folder` holds something that is no policy.
    """
    folder = Path(folder)
    _refuse_foreign(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh, stale = folder.with_name(folder.name + ".writing"), folder.with_name(folder.name + ".replaced")
    for leftover in (fresh, stale):
        shutil.rmtree(leftover, ignore_errors=True)
    transformers_logging.disable_progress_bar()
    with raising_os_errors(fresh):
        model.save_pretrained(str(fresh))
        tokenizer.save_pretrained(str(fresh))
    for file in weight_files(fresh):  # written for the owner only, unlike the rest
        file.chmod((fresh / "config.json").stat().st_mode)
    if folder.exists():
        folder.rename(stale)
    crash_point("policy.before")
    fresh.rename(folder)
    crash_point("policy.after")
    shutil.rmtree(stale, ignore_errors=True)


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

    Raises `CheckpointError` that names the damaged or missing file.
    """
    weights: dict[str, torch.Tensor] = {}
    for file in weight_files(Path(path)):
        try:
            weights |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file} is damaged: {error}", load_advice(error)) from error
    return weights


def weight_shapes(path: str | Path) -> dict[str, list[int]]:
    """Shape of every tensor of a policy folder by name; reads the files' headers alone, which also hold their lengths.

    Raises `CheckpointError` that names the damaged or missing file.
    """
    shapes: dict[str, list[int]] = {}
    for file in weight_files(Path(path)):
        try:
            with safe_open(file, framework="pt") as opened:
                shapes |= {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file} is damaged: {error}", load_advice(error)) from error
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
