"""Low-rank adapters (LoRA, arXiv 2106.09685) in a policy's folder, in the format of `peft`.

With factors A `[r, D]` and B `[E, r]`, a matrix W `[E, D]` of the base becomes W + alpha / r B A. A folder with an
adapter holds the factors and names the folder of the base.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch

from quartet.errors import CheckpointError
from quartet.policy.files import raising_checkpoint_errors

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
ADAPTER_FOLDER = "adapter"
"""Subfolder with the adapter alone, in the folder of a policy whose weights were merged with it."""
PREFIX = "base_model.model."
"""Prefix of the names of all tensors in `peft`'s files."""

CHANGE_THE_BASE = ("pissa", "olora", "corda", "loftq")
"""Initial values of factors by which `peft` changes the weights of the base too."""


class AdapterConfig(msgspec.Struct, frozen=True):
    """Fields of `adapter_config.json` that determine the policy's weights. Other variants of LoRA are rejected."""

    base_model_name_or_path: str
    r: int
    lora_alpha: float
    peft_type: str = ""
    fan_in_fan_out: bool = False
    """True if the base stores its matrices as `[D, E]`, as GPT-2 does."""
    bias: str = "none"
    use_dora: bool = False
    use_rslora: bool = False
    rank_pattern: dict[str, int] = {}
    alpha_pattern: dict[str, float] = {}
    modules_to_save: list[str] | None = None
    lora_bias: bool = False
    use_qalora: bool = False
    init_lora_weights: bool | str = True
    layer_replication: list[tuple[int, int]] | None = None
    trainable_token_indices: list[int] | dict[str, list[int]] | None = None
    target_parameters: list[str] | None = None
    alora_invocation_tokens: list[int] | None = None

    @property
    def is_plain(self) -> bool:
        """True for LoRA as in its paper, with one rank and one alpha."""
        other = (
            *(self.use_dora, self.use_rslora, self.rank_pattern, self.alpha_pattern, self.modules_to_save),
            *(self.lora_bias, self.use_qalora, self.layer_replication, self.trainable_token_indices),
            *(self.target_parameters, self.alora_invocation_tokens),
            str(self.init_lora_weights).startswith(CHANGE_THE_BASE),
        )
        return self.peft_type == "LORA" and self.bias == "none" and not any(other)


def is_adapter(folder: Path) -> bool:
    """Return whether a policy's folder holds an adapter instead of whole weights."""
    return (folder / ADAPTER_CONFIG).is_file()


def read_config(folder: Path) -> AdapterConfig:
    """Return the configuration of the adapter in `folder`.

    Raises `CheckpointError` for a damaged file and for other methods than plain LoRA.
    """
    file = folder / ADAPTER_CONFIG
    with raising_checkpoint_errors(f"cannot read {file}"):
        config = msgspec.json.decode(file.read_bytes(), type=AdapterConfig)
    if not config.is_plain:
        raise CheckpointError(
            f"{file} describes another method than plain LoRA", "merge the adapter with its base first"
        )
    return config


@torch.no_grad()
def merged(
    base: Mapping[str, torch.Tensor], factors: Mapping[str, torch.Tensor], config: AdapterConfig
) -> dict[str, torch.Tensor]:
    """Return the weights of the base, in which those that the adapter changes are replaced by float32 sums.

    Raises `CheckpointError` if the adapter belongs to another base, or has other tensors than pairs of factors.
    """
    pairs = {key: key.replace(".lora_A.", ".lora_B.") for key in factors if key.endswith(".lora_A.weight")}
    if others := sorted(factors.keys() - pairs.keys() - {*pairs.values()}):
        raise CheckpointError(
            f"the adapter for the base in {config.base_model_name_or_path} has {others[0]}, which is no factor of a "
            "matrix",
            "merge the adapter with its base first",
        )
    weights, scaling = dict(base), config.lora_alpha / config.r
    for key, partner in pairs.items():
        a_rD, b_Er = factors[key], factors.get(partner)
        name = key.removeprefix(PREFIX).replace(".lora_A.", ".")
        product = None if b_Er is None else b_Er.float() @ a_rD.float()
        product = product.t() if product is not None and config.fan_in_fan_out else product
        if product is None or name not in base or base[name].shape != product.shape:
            raise CheckpointError(
                f"the adapter's factors for {name} do not fit the base in {config.base_model_name_or_path}",
                "restore the folder of the adapter or of its base from a copy",
            )
        weights[name] = base[name].float() + scaling * product
    return weights
