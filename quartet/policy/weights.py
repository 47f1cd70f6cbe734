"""Weights of policies: read from a folder, copied into a model, cast.

Weights are read from safetensors only; pickles are not opened.
"""

import copy
from functools import cache, reduce
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import PreTrainedModel

from quartet.errors import CheckpointError
from quartet.policy.adapter import ADAPTER_WEIGHTS, is_adapter, merged, read_config
from quartet.policy.files import check_policy, raising_checkpoint_errors
from quartet.policy.kind.find import kind_of
from quartet.policy.whole_load import load_whole


def read_weights(path: str | Path) -> dict[str, torch.Tensor]:
    """Return the weights of the policy in a folder, by the names of the model's parameters. Tied tensors are stored
    under one of their names only.

    An adapter is merged with its base. Raises `CheckpointError` like `stored_tensors`.
    """
    tensors = stored_tensors(path)
    if not is_adapter(Path(path)):
        kind = kind_of(Path(path))
        if kind.converts_weights:
            return _converted(Path(path), {tensor.dtype for tensor in tensors.values()})
        is_decoder_alone = not any(name.startswith(kind.decoder_prefix) for name in tensors)
        prefix = kind.decoder_prefix if is_decoder_alone else ""
        return {prefix + kind.parameter_name(name): tensor for name, tensor in tensors.items()}
    config = read_config(Path(path))
    return merged(_base_weights(config.base_model_name_or_path), tensors, config)


def _converted(folder: Path, dtypes: set[torch.dtype]) -> dict[str, torch.Tensor]:
    """Return the parameters of a model that `transformers` computes from tensors of `dtypes`, in the widest of them."""
    model = load_whole(folder, reduce(torch.promote_types, dtypes))
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


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
