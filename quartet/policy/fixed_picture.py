"""Fixed picture for probes of engines: logits after it also compare the use of a vision tower's outputs.

The picture takes 2 x 2 placeholder tokens. Its patches are given directly as numbers, so no image processor is needed.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from quartet.policy.kind.find import vision_kind

NUM_PLACEHOLDERS = 4


def fixed_picture_inputs(model: Any) -> dict[str, torch.Tensor]:
    """Return the arguments of the vision tower for the fixed picture."""
    vision = model.config.vision_config
    side = 2 * vision.spatial_merge_size
    patch = (3, vision.temporal_patch_size, vision.patch_size, vision.patch_size)
    pixels_X = torch.arange(side * side * math.prod(patch)).remainder(19).float() / 9 - 1
    return {
        "pixel_values": pixels_X.view(side * side, -1).to(model.device),
        "image_grid_thw": torch.tensor([[1, side, side]], device=model.device),
    }


def behind_fixed_picture(model: Any, token_ids: Sequence[int]) -> list[int]:
    """Return the picture's placeholders and the tokens after it. Placeholder tokens among `token_ids` are left out."""
    image = model.config.image_token_id
    return [*[image] * NUM_PLACEHOLDERS, *(token for token in token_ids if token != image)]


@torch.inference_mode()
def fixed_picture_logits(model: Any, token_ids: Sequence[int]) -> torch.Tensor | None:
    """Return the logits `[1 + num_tokens, vocab]` after the picture and after each token behind it; None for a text
    model."""
    if vision_kind(model) is None:
        return None
    ids = torch.tensor(behind_fixed_picture(model, token_ids), device=model.device)
    positions_31L = torch.arange(len(ids), device=model.device).expand(3, 1, -1)
    inputs = fixed_picture_inputs(model)
    logits_LV = model(input_ids=ids[None], position_ids=positions_31L, use_cache=False, **inputs).logits[0]
    return logits_LV[NUM_PLACEHOLDERS - 1 :]
