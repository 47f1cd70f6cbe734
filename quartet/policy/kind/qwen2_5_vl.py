"""Qwen2.5-VL: most layers of the vision tower attend within windows of patches.

Source: arXiv 2502.13923.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from quartet.policy.kind.qwen_vl import QwenVL, encoder_outputs

if TYPE_CHECKING:
    import torch


class Qwen2_5VL(QwenVL):  # noqa: N801  (the model's name)
    """Qwen2.5-VL, also the base of UI-TARS-1.5, DART and OpenCUA."""

    model_type = "qwen2_5_vl"
    actions = "ui_tars"

    def parameter_name(self, stored: str) -> str:
        """Return the parameter's name. Files have the names of earlier versions of `transformers`."""
        if stored.startswith("visual."):
            return f"model.{stored}"
        return re.sub(r"^model\.(?!language_model\.|visual\.)", "model.language_model.", stored)

    def features(self, model: Any, inputs: "dict[str, torch.Tensor]") -> "torch.Tensor":
        import torch

        return torch.cat(list(self.tower_output(model, inputs).pooler_output)).unsqueeze(0)

    def arguments(self, features: "Sequence[torch.Tensor]") -> dict[str, Any]:
        return encoder_outputs(pooler_output=tuple(one[0] for one in features))
