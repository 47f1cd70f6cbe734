"""Demonstrations as a policy reads them: token ids, patches of pictures, and the logits of responses.

All pictures must have the same size, so that their patches are one tensor.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from quartet.policy.examples import Example, pad
from quartet.policy.load import LoadedPolicy
from quartet.policy.renderer import Renderer
from quartet.types import Media, Message, Picture

from .demonstrate import Demonstration

COMPUTED = frozenset({"find-midpoint", "bisect-angle"})
"""Families whose place is computed from several things that lie elsewhere in the picture."""


class Lessons(NamedTuple):
    """Demonstrations as the policy reads them in a rollout."""

    examples: list[Example]
    """Token ids, and a mask of the response's tokens."""
    media: list[Media]
    patches_NPD: torch.Tensor
    """Patches of each picture, in half precision."""
    grid: torch.Tensor
    """Number of patches of every picture along time, height and width."""
    guided: list[bool]
    """True for first turns of families that are not in `COMPUTED`: their attention is supervised."""


def prepare(policy: LoadedPolicy, demonstrations: Sequence[Demonstration]) -> Lessons:
    """Return the token ids and patches of demonstrations."""
    renderer, processor = Renderer(policy.tokenizer, policy.pictures), policy.pictures
    assert processor is not None, "the policy reads pictures"
    examples: list[Example] = []
    media: list[Media] = []
    patches: list[torch.Tensor] = []
    grids: set[tuple[int, int, int]] = set()
    for one in demonstrations:
        prompt = renderer.start_chat([Message("user", one.text)], pictures=[Picture(data=one.picture)])
        response = renderer.response(one.response)
        learned = [*[False] * len(prompt.ids), *[True] * len(response)]
        examples.append(Example([*prompt.ids, *response], learned))
        media += prompt.media
        patches.append(processor.inputs([(prompt.media[0], one.picture)])["pixel_values"].half())
        grids.add(prompt.media[0].grid)
    (grid,) = grids
    guided = [one.turn == 0 and one.family not in COMPUTED for one in demonstrations]
    return Lessons(examples, media, torch.stack(patches), torch.tensor([grid]), guided)


@torch.no_grad()
def start_from_white(policy: LoadedPolicy, lessons: Lessons) -> None:
    """Set the bias of the first layer so that white patches begin as 0, and what is drawn on them stands out."""
    model: Any = policy.model
    first = model.model.visual.patch_embed.proj
    # Pixels are normalised per channel, so the brightest value of a component of the patches is white.
    white_D = lessons.patches_NPD.flatten(0, 1).amax(dim=0).float()
    first.bias.copy_(-(first.weight.flatten(1) @ white_D))


def answered(policy: LoadedPolicy, lessons: Lessons, chosen: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits `[N, V]` and the ids `[N]` of all response tokens of the chosen lessons, row by row."""
    model: Any = policy.model
    assert policy.pictures is not None, "the policy reads pictures"
    batch = pad([lessons.examples[index] for index in chosen], pad_id=0)
    positions_3BT = np.stack(
        [
            policy.pictures.positions(ids_T, [lessons.media[index]])
            for ids_T, index in zip(batch.ids_BT.numpy(), chosen, strict=True)
        ],
        axis=1,
    )
    learned_BT = batch.learned_BT[:, 1:]
    columns_C = learned_BT.any(dim=0).nonzero()[:, 0]
    logits_BCV = model(
        input_ids=batch.ids_BT,
        position_ids=torch.from_numpy(positions_3BT),
        pixel_values=lessons.patches_NPD[list(chosen)].flatten(0, 1).float(),
        image_grid_thw=lessons.grid.expand(len(chosen), -1),
        logits_to_keep=columns_C,
        use_cache=False,
    ).logits
    chosen_BC = learned_BT[:, columns_C]
    return logits_BCV[chosen_BC].float(), batch.ids_BT[:, 1:][:, columns_C][chosen_BC]
