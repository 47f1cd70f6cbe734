"""Norms and gates of a decoder that compute with `layer_ops.py` if possible, and otherwise as in `transformers`."""

from functools import cache
from typing import Any

import torch
from transformers.activations import SiLUActivation

from quartet.train.kernel.layer_ops import Gated, Norm, layer_kernels
from quartet.train.linear import on_cpu

NORMS = frozenset(
    {"LlamaRMSNorm", "MistralRMSNorm", "Qwen2RMSNorm", "Qwen2_5_VLRMSNorm", "Qwen3RMSNorm", "Qwen3VLTextRMSNorm"}
)
"""Classes of `transformers` that compute x / RMS(x) * weight."""
GATES = frozenset(f"{name}MLP" for name in ("Llama", "Mistral", "Qwen2", "Qwen3", "Qwen3VLText"))
"""Classes of `transformers` that compute down(act(gate(x)) * up(x))."""

LIBRARY = "transformers.models."
"""Beginning of the names of the classes' modules. A model's own code may have other classes of the same names."""


class KernelNorm(torch.nn.Module):
    def forward(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        library = layer_kernels(hidden_states)
        if library is None or self.weight.dtype != torch.float32:
            return super().forward(hidden_states)
        return Norm.apply(hidden_states, self.weight, self.variance_epsilon, library)


class KernelGate(torch.nn.Module):
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        library = layer_kernels(gate)
        return self.down_proj(self.act_fn(gate) * up if library is None else Gated.apply(gate, up, library))


def train_by_kernels(model: torch.nn.Module) -> None:
    """Give the norms and gates of the known classes the forward pass of this file, if they are on a CPU. Parameters and
    their names do not change."""
    if not on_cpu(model):
        return
    for module in model.modules():
        forward = _kernel_for(module)
        if forward is not None:
            module.__class__ = _with(forward, type(module))


def _kernel_for(module: torch.nn.Module) -> type[torch.nn.Module] | None:
    name = type(module).__name__
    if isinstance(module, (KernelNorm, KernelGate)) or not type(module).__module__.startswith(LIBRARY):
        return None
    if name in NORMS:
        return KernelNorm
    return KernelGate if name in GATES and isinstance(module.act_fn, SiLUActivation) else None


@cache
def _with(forward: type[torch.nn.Module], own: type[torch.nn.Module]) -> type[torch.nn.Module]:
    return type(own.__name__, (forward, own), {})
