"""Qwen3-VL: DeepStack adds outputs of the vision tower's middle layers to the first layers of the decoder.

Source: arXiv 2511.21631; DeepStack, arXiv 2406.04334.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from quartet.policy.kind.qwen_vl import QwenVL, encoder_outputs

if TYPE_CHECKING:
    import torch


class Qwen3VL(QwenVL):
    """Qwen3-VL, also the base of GUI-Owl-1.5 and EvoCUA."""

    model_type = "qwen3_vl"
    actions = "qwen3_vl"

    def features(self, model: Any, inputs: "dict[str, torch.Tensor]") -> "torch.Tensor":
        import torch

        output = self.tower_output(model, inputs)
        return torch.stack([torch.cat(list(one)) for one in (output.pooler_output, *output.deepstack_features)])

    def arguments(self, features: "Sequence[torch.Tensor]") -> dict[str, Any]:
        first, *deeper = zip(*(one.unbind() for one in features), strict=True)
        return encoder_outputs(pooler_output=first, deepstack_features=deeper)
