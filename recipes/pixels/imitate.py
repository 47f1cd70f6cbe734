"""Supervised training of a policy that reads pictures, on demonstrations of single turns.

The loss is the cross entropy of the responses' tokens, in which the neighbours of a location are partly right, and the
guidance of attention (`guide.py`).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from quartet.policy.load import LoadedPolicy
from quartet.train.linear import train_by_the_faster_library

from .guide import NO_TARGETS, AttentionTargets, Guide
from .lessons import Lessons, answered

WARMUP_STEPS = 50
FINAL_LEARNING_RATE_SHARE = 0.05
ADAM_BETAS = (0.9, 0.98)
MAX_GRAD_NORM = 1.0
LOCATION_STD = 1.0
"""Standard deviation, in locations, of the distribution that a location token is trained towards."""
GUIDANCE_WEIGHT = 0.3


class ImitationStep(NamedTuple):
    """Metrics of one optimizer step."""

    step: int
    loss: float
    """Mean cross entropy of the responses' tokens, in nats."""
    guidance: float
    """Mean negative logarithm of the supervised attention, in nats."""
    accuracy: float
    """Share of the responses' tokens that are the most likely ones."""


def imitate(
    policy: LoadedPolicy,
    lessons: Lessons,
    *,
    parts: int,
    steps: int,
    batch_size: int,
    learning_rate: float,
    seed: int = 0,
) -> Iterator[ImitationStep]:
    """Train the policy in place, and yield the metrics of each step.

    The learning rate rises during warmup, then falls linearly. The same seed gives the same weights.
    """
    model: Any = policy.model.train()
    train_by_the_faster_library(model)
    guide = Guide(policy, parts)
    try:
        optimizer = torch.optim.AdamW(model.parameters(), betas=ADAM_BETAS, weight_decay=0.0, fused=True)
        draw, count = np.random.default_rng(seed), len(lessons.examples)
        epochs = 1 + steps * batch_size // count
        order = np.concatenate([draw.permutation(count) for _ in range(epochs)])
        for step in range(1, steps + 1):
            share = 1 - (1 - FINAL_LEARNING_RATE_SHARE) * step / steps
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * min(1.0, step / WARMUP_STEPS) * share
            chosen = order[(step - 1) * batch_size : step * batch_size].tolist()
            logits_NV, targets_N = answered(policy, lessons, chosen)
            loss = near_entropy(logits_NV, targets_N, guide.locations)
            guidance = guide.loss([_targets(guide, lessons, index) for index in chosen])
            (loss + GUIDANCE_WEIGHT * guidance).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
            optimizer.step()
            optimizer.zero_grad()
            accuracy = (logits_NV.argmax(-1) == targets_N).float().mean()
            yield ImitationStep(step, loss.item(), guidance.item(), accuracy.item())
    finally:
        guide.close()
        model.eval()


def _targets(guide: Guide, lessons: Lessons, index: int) -> AttentionTargets:
    """Return the targets of a lesson's attention; none if it is not supervised."""
    if not lessons.guided[index]:
        return NO_TARGETS
    return guide.targets(lessons.examples[index], lessons.media[index])


def near_entropy(logits_NV: torch.Tensor, targets_N: torch.Tensor, locations: range) -> torch.Tensor:
    """Return the mean cross entropy of targets, in nats.

    A location token is trained towards a normal distribution over the locations (`LOCATION_STD`), since a click beside
    the demonstrated one is nearly as good.
    """
    indices_L = torch.arange(len(locations))
    located_N = (targets_N >= locations.start) & (targets_N < locations.stop)
    offsets_ML = indices_L - (targets_N[located_N] - locations.start).unsqueeze(1)
    wanted_ML = torch.softmax(-offsets_ML.square() / (2 * LOCATION_STD**2), dim=1)
    log_probs_NV = logits_NV.log_softmax(dim=-1)
    near_M = (wanted_ML * log_probs_NV[located_N][:, locations.start : locations.stop]).sum(dim=1)
    exact = log_probs_NV[~located_N].gather(1, targets_N[~located_N].unsqueeze(1))
    return -(near_M.sum() + exact.sum()) / len(targets_N)
