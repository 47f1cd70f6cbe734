"""Fixed screenshot of the canary. Log-probs of tokens behind it verify the image processor and the vision tower.

It takes the way of every picture, from encoded bytes through the image processor. Its size is no multiple of a
placeholder's side, so it is resized.
"""

from collections.abc import Sequence
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
import torch

from quartet.policy.kind.base import PictureProcessor
from quartet.types import Prompt

WIDTH, HEIGHT = 100, 76
SQUARE = 8
"""Side, in pixels, of the squares of the blue channel's chequerboard."""


@cache
def fixed_screenshot() -> bytes:
    """Return a picture as PNG: red rises to the right, green downwards, and blue is a chequerboard."""
    from PIL import Image

    rows_HW, columns_HW = np.indices((HEIGHT, WIDTH))
    red_HW, green_HW = 255 * columns_HW // (WIDTH - 1), 255 * rows_HW // (HEIGHT - 1)
    blue_HW = 255 * ((rows_HW // SQUARE + columns_HW // SQUARE) % 2)
    file = BytesIO()
    Image.fromarray(np.stack([red_HW, green_HW, blue_HW], axis=-1).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def behind_screenshot(pictures: PictureProcessor, token_ids: Sequence[int]) -> tuple[Prompt, int]:
    """Return the prompt of the fixed screenshot and the tokens behind it, and the index of the first of these.

    Tokens that stand for pictures are left out.
    """
    shown = pictures.prompt(fixed_screenshot())
    tokens = [token for token in token_ids if token not in pictures.never_sampled]
    return shown + Prompt(tokens), len(shown.ids)


@torch.inference_mode()
def score_behind_screenshot(model: Any, pictures: PictureProcessor, token_ids: Sequence[int]) -> torch.Tensor:
    """Return the log-probs, float32, of the tokens behind the fixed screenshot, by the model's own forward pass."""
    prompt, first = behind_screenshot(pictures, token_ids)
    ids_L = torch.tensor(prompt.ids, device=model.device)
    positions_3L = torch.from_numpy(pictures.positions(np.array(prompt.ids), prompt.media)).to(model.device)
    patches = pictures.inputs([(one, fixed_screenshot()) for one in prompt.media])
    logits_LV = model(
        input_ids=ids_L[None],
        position_ids=positions_3L[:, None],
        use_cache=False,
        **{name: tensor.to(model.device) for name, tensor in patches.items()},
    ).logits[0]
    logprobs_NV = logits_LV[first - 1 : -1].float().log_softmax(-1)
    return logprobs_NV.gather(-1, ids_L[first:, None])[:, 0].cpu()
