"""AdamW over a policy and its critic: one group of parameters each, with a common schedule."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from quartet.config import Train
from quartet.train.critic.base import Critic
from quartet.train.ranks.base import whole

FINAL_LEARNING_RATE_SHARE = 0.1
"""Share of the peak learning rate to which the rate falls linearly."""


def make_optimizer(model: PreTrainedModel, critic: Critic | None, train: Train) -> torch.optim.AdamW:
    """Return the optimizer. The policy's groups come first. On several ranks, sharded parameters and whole ones are
    different groups, since PyTorch does not mix them in one operation.

    Entry `peak` of a group is its peak learning rate, `start` the number of optimizer steps before it begins to learn,
    and `owner` names what its gradient is clipped with.
    """
    start = critic.settings.warmup_steps if critic else 0
    own = {"owner": "policy", "peak": train.learning_rate, "start": start}
    groups = [{"params": params, **own} for params in by_sharding(trained_parameters(model).values())]
    if critic is not None:
        own = {"owner": "critic", "peak": critic.settings.learning_rate, "start": 0, "weight_decay": 0.0}
        groups += [{"params": params, **own} for params in by_sharding(trained_parameters(critic.module).values())]
    return torch.optim.AdamW(
        groups,
        lr=train.learning_rate,
        betas=(train.adam_beta1, train.adam_beta2),
        weight_decay=train.weight_decay,
        fused=True,
    )


def trained_parameters(module: torch.nn.Module, prefix: str = "") -> dict[str, torch.nn.Parameter]:
    """Return the parameters that are trained, by name: with an adapter only its factors, otherwise all."""
    return {name: parameter for name, parameter in module.named_parameters(prefix) if parameter.requires_grad}


def set_learning_rates(optimizer: torch.optim.Optimizer, train: Train, optimizer_step: int) -> None:
    """Set each group's learning rate for the optimizer step with this number, from 1."""
    for group in optimizer.param_groups:
        group["lr"] = scheduled(group["peak"], train, max(0, optimizer_step - group["start"]))


def learning_parameters(optimizer: torch.optim.Optimizer, optimizer_step: int) -> Iterator[torch.nn.Parameter]:
    """Yield the parameters of the groups that learn at the optimizer step with this number, from 1."""
    for group in optimizer.param_groups:
        if optimizer_step > group["start"]:
            yield from group["params"]


@contextmanager
def without_early_gradients(optimizer: torch.optim.Optimizer, optimizer_step: int, *, sharded: bool) -> Iterator[None]:
    """Leave groups that do not learn yet at the optimizer step with this number, from 1, without gradients.

    AdamW then changes neither their weights nor their moments, and whether they are finite does not matter. The
    gradients are not computed; of `sharded` weights they are dropped after the block, since FSDP decides at its first
    pass which weights have gradients.
    """
    early = [one for group in optimizer.param_groups if optimizer_step <= group["start"] for one in group["params"]]
    for parameter in early:
        parameter.requires_grad_(sharded)
    try:
        yield
    finally:
        for parameter in early:
            parameter.requires_grad_(True)
            parameter.grad = None


@contextmanager
def on_device_for_step(optimizer: torch.optim.Optimizer, device: torch.device, train: Train) -> Iterator[None]:
    """Hold the moments on `device` inside the block; with `train.offload_optimizer`, in the CPU's memory after it."""
    if not train.offload_optimizer:
        yield
        return
    _move_state(optimizer, device)
    try:
        yield
    finally:
        _move_state(optimizer, torch.device("cpu"))


def _move_state(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    for state in optimizer.state.values():
        state.update({entry: tensor.to(device) for entry, tensor in state.items()})


def scheduled(peak: float, train: Train, optimizer_step: int) -> float:
    """Return the learning rate: linear warmup over the first optimizer steps to the peak, then constant or a linear
    fall to the final share."""
    warm = min(1.0, optimizer_step / max(1, train.warmup_steps))
    fallen = min(1.0, max(0, optimizer_step - train.warmup_steps) / train.decay_steps) if train.decay_steps else 0.0
    return peak * warm * (1 - (1 - FINAL_LEARNING_RATE_SHARE) * fallen)


def by_sharding(parameters: Iterable[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
    """Return the sharded parameters and the others, without empty lists."""
    lists: dict[bool, list[torch.nn.Parameter]] = {}
    for parameter in parameters:
        lists.setdefault(isinstance(parameter, DTensor), []).append(parameter)
    return list(lists.values())


def clip_gradients(optimizer: torch.optim.Optimizer, bound: float) -> list[float]:
    """Clip the gradients of the policy and of the critic to the norm `bound`; return the norms before clipping.

    Each is clipped by itself, so that a large gradient of the critic does not shorten the policy's step.
    """
    parts: dict[str, list[list[torch.nn.Parameter]]] = {}
    for group in optimizer.param_groups:
        parts.setdefault(group["owner"], []).append(group["params"])
    return [_clip(of_owner, bound) for of_owner in parts.values()]


def _clip(parts: list[list[torch.nn.Parameter]], bound: float) -> float:
    if len(parts) == 1:
        return float(whole(torch.nn.utils.clip_grad_norm_(parts[0], bound, foreach=True)))
    gradients = [[parameter.grad for parameter in part if parameter.grad is not None] for part in parts]
    norm = math.hypot(*(float(whole(torch.nn.utils.get_total_norm(part, foreach=True))) for part in gradients))
    for gradient in (gradient for part in gradients for gradient in part):
        gradient.mul_(min(1.0, bound / (norm + 1e-6)))
    return norm
