"""Supervised training of a policy that reads pictures, on demonstrations of single turns.

All pictures must have the same size, so that their patches are one tensor. The loss is the cross entropy of the
responses' tokens.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from quartet.policy.examples import Example, pad
from quartet.policy.load import LoadedPolicy
from quartet.policy.renderer import Renderer
from quartet.types import Media, Message, Picture

from .demonstrate import Demonstration

WARMUP_STEPS = 50
FINAL_LEARNING_RATE_SHARE = 0.05
ADAM_BETAS = (0.9, 0.98)
MAX_GRAD_NORM = 1.0


class Lessons(NamedTuple):
    """Demonstrations as the policy reads them in a rollout."""

    examples: list[Example]
    """Token ids, and a mask of the response's tokens."""
    media: list[Media]
    patches_NPD: torch.Tensor
    """Patches of each picture, in half precision."""
    grid: torch.Tensor
    """Number of patches of every picture along time, height and width."""


class ImitationStep(NamedTuple):
    """Metrics of one optimizer step."""

    step: int
    loss: float
    """Mean cross entropy of the responses' tokens, in nats."""
    accuracy: float
    """Share of the responses' tokens that are the most likely ones."""


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
    return Lessons(examples, media, torch.stack(patches), torch.tensor([grid]))


def imitate(
    policy: LoadedPolicy, lessons: Lessons, *, steps: int, batch_size: int, learning_rate: float, seed: int = 0
) -> Iterator[ImitationStep]:
    """Train the policy in place, and yield the metrics of each step.

    The learning rate rises during warmup, then falls linearly. The same seed gives the same weights.
    """
    model: Any = policy.model.train()
    optimizer = torch.optim.AdamW(model.parameters(), betas=ADAM_BETAS, weight_decay=0.0, fused=True)
    draw, count = np.random.default_rng(seed), len(lessons.examples)
    epochs = 1 + steps * batch_size // count
    order = np.concatenate([draw.permutation(count) for _ in range(epochs)])
    for step in range(1, steps + 1):
        share = 1 - (1 - FINAL_LEARNING_RATE_SHARE) * step / steps
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1.0, step / WARMUP_STEPS) * share
        logits_NV, targets_N = answered(policy, lessons, order[(step - 1) * batch_size : step * batch_size].tolist())
        loss = cross_entropy(logits_NV, targets_N)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        optimizer.zero_grad()
        yield ImitationStep(step, loss.item(), (logits_NV.argmax(-1) == targets_N).float().mean().item())
    model.eval()


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
