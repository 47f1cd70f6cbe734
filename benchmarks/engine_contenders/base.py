"""Interface of the contenders, and their workloads."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from msgspec import Struct
from transformers import PreTrainedModel

from quartet.policy.load import load_model
from quartet.policy.model import make_model

Loader = Callable[[torch.dtype], PreTrainedModel]
"""Function that makes a model of its own for each contender, with equal weights."""
VOCAB_SIZE = 4096
"""Ids of the prompts; a model may have more."""
MAX_CONTEXT_TOKENS = 1024


class Workload(Struct, frozen=True):
    """Conversations that start together. A contender samples exactly `new_tokens` tokens per turn."""

    prompts: list[list[int]]
    """First prompt of each conversation."""
    observations: list[list[list[int]]]
    """Ids that follow each response except the last, `[conversation][turn]`; empty for a single turn."""
    new_tokens: int

    @property
    def turns(self) -> int:
        return 1 + len(self.observations[0])

    @property
    def generated_tokens(self) -> int:
        return len(self.prompts) * self.turns * self.new_tokens


class Contender(Protocol):
    """One method of generation."""

    name: str

    def run(self, workload: Workload, seed: int) -> None:
        """Sample every response at temperature 1 with its log-probs. Raises an error for a response of wrong length."""
        ...

    def close(self) -> None: ...


def tiny_model(dtype: torch.dtype) -> PreTrainedModel:
    """Return a Qwen3 with 3.4 M parameters and random weights."""
    model: Any = make_model(
        VOCAB_SIZE, hidden_size=256, num_layers=4, num_heads=4, num_kv_heads=2, intermediate_size=512
    )
    return model.to(dtype)


def loader(folder: Path | None) -> Loader:
    """Return the loader of the model in a folder; without one, of the small model."""
    if folder is None:
        return tiny_model
    return lambda dtype: load_model(folder).to(dtype)  # pyright: ignore[reportArgumentType]


def distinct(concurrent: int, prompt_tokens: int, new_tokens: int, seed: str) -> Workload:
    """Return single-turn requests whose prompts have nothing in common."""
    rng = random.Random(seed)
    return Workload([_ids(rng, prompt_tokens) for _ in range(concurrent)], [[]] * concurrent, new_tokens)


def shared(concurrent: int, group: int, prompt_tokens: int, new_tokens: int, seed: str) -> Workload:
    """Return single-turn requests in groups that share a prompt, like the rollouts of one task."""
    rng = random.Random(seed)
    prompts = [_ids(rng, prompt_tokens) for _ in range(concurrent // group)]
    return Workload([prompt for prompt in prompts for _ in range(group)], [[]] * concurrent, new_tokens)


def conversations(
    concurrent: int, turns: int, prompt_tokens: int, observation_tokens: int, new_tokens: int, seed: str
) -> Workload:
    """Return conversations that grow by a response and an observation per turn."""
    rng = random.Random(seed)
    prompts = [_ids(rng, prompt_tokens) for _ in range(concurrent)]
    observations = [[_ids(rng, observation_tokens) for _ in range(turns - 1)] for _ in range(concurrent)]
    return Workload(prompts, observations, new_tokens)


def _ids(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(1, VOCAB_SIZE) for _ in range(count)]
