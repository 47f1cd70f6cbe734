"""Low-rank adapters (LoRA, arXiv 2106.09685) in a model that is trained, by `peft`."""

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from quartet.config import Lora
from quartet.errors import ConfigError
from quartet.policy.adapter import ADAPTER_WEIGHTS, PREFIX, AdapterConfig, merged

NAME = "default"
"""Name of the adapter within the model; a model has one."""
_FACTOR = ".lora_"
"""Part of the names of factors."""


def add_adapter(model: PreTrainedModel, lora: Lora, base: str, seed: int, *, without: str | None = None) -> None:
    """Freeze the weights of `model`, and add trainable factors A, random by the seed, and B, which is 0.

    The model thus computes the same as before. `base` is the folder of its weights; layers whose whole names match the
    pattern `without` get no factors. Raises `ConfigError` if no module matches `lora.target_modules`.
    """
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # pyright: ignore[reportArgumentType]  (peft only divides it by the rank)
        target_modules=lora.target_modules or "all-linear",
        exclude_modules=without,
        base_model_name_or_path=base,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            inject_adapter_in_model(config, model, adapter_name=NAME)
        except ValueError as error:  # peft's own error for this inherits from it
            raise ConfigError(f"lora.target_modules: {error}", "name linear layers of the model") from error
    config.target_modules = sorted(config.target_modules or [])  # peft keeps a set, whose order varies
    embedding: Any = model.get_input_embeddings()
    for name, layer in _adapted(model).items():
        if layer.get_base_layer().weight is embedding.weight:
            raise ConfigError(
                f"lora.target_modules: {name} is an embedding, or an output matrix that is tied to it",
                "name linear layers of the decoder",
            )
    model.eval()


def has_adapter(model: torch.nn.Module) -> bool:
    return bool(getattr(model, "peft_config", None))


@contextmanager
def without_adapter(model: torch.nn.Module) -> Iterator[None]:
    """Let the model compute as its base inside the block, by the factor 0 for B A.

    `peft`'s own switch changes `requires_grad`, which must not happen between the passes of sharded weights.
    """
    for layer in _adapted(model).values():
        layer.set_scale(NAME, 0.0)
    try:
        yield
    finally:
        for layer in _adapted(model).values():
            layer.set_scale(NAME, 1.0)


def policy_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return the model's weights by name, as `quartet.policy.weights.read_weights` returns those of its folder."""
    if not has_adapter(model):
        return {name: parameter.detach() for name, parameter in model.named_parameters()}
    config = _config(model)
    described = AdapterConfig("the model", config.r, config.lora_alpha, fan_in_fan_out=config.fan_in_fan_out)
    base = {
        name.replace(".base_layer.", "."): parameter.detach()
        for name, parameter in model.named_parameters()
        if _FACTOR not in name
    }
    return merged(base, adapter_tensors(model), described)


@torch.no_grad()
def merged_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of the model without its adapter, which is added to its weights."""
    plain, weights = copy.deepcopy(model), policy_weights(model)
    for name, layer in _adapted(plain).items():
        plain.set_submodule(name, layer.get_base_layer())
    del plain.peft_config
    for name, parameter in plain.named_parameters():
        parameter.copy_(weights[name])
    return plain


def trained_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return a merged copy of the model in which all weights are trained, except those of layers that get no factors
    (`without` of `add_adapter`)."""
    plain, without = merged_copy(model), _config(model).exclude_modules
    for name, parameter in plain.named_parameters():
        parameter.requires_grad_(without is None or not re.fullmatch(without, name))
    return plain


def adapter_tensors(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return the adapter's factors by their names in `peft`'s files."""
    return {
        PREFIX + name.replace(f".{NAME}.", "."): parameter.detach()
        for name, parameter in model.named_parameters()
        if _FACTOR in name
    }


def write_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Write the adapter's factors and its configuration to `folder`."""
    folder.mkdir(exist_ok=True)
    _config(model).save_pretrained(str(folder))
    save_file(
        {name: tensor.cpu().contiguous() for name, tensor in adapter_tensors(model).items()},
        folder / ADAPTER_WEIGHTS,
        metadata={"format": "pt"},
    )


def _config(model: torch.nn.Module) -> Any:
    configs: Any = model.peft_config
    return configs[NAME]


def _adapted(model: torch.nn.Module) -> dict[str, Any]:
    """Return the layers that have an adapter, by their names."""
    from peft.tuners.lora import LoraLayer

    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
