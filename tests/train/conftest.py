"""Fixtures of the trainer's tests."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_batches import make_model
from trainer_runs import TRAIN, Run
from transformers import Qwen3ForCausalLM

from quartet.config import Recipe
from quartet.recipe.file import parse_recipe

torch.set_num_threads(1)


@pytest.fixture
def tiny_model() -> Qwen3ForCausalLM:
    return make_model()


@pytest.fixture
def recipe() -> Callable[..., Recipe]:
    """A recipe with some settings set: `recipe(train={"epochs": 2})`."""

    def build(**sections: object) -> Recipe:
        base = {"name": "test", "model": {"path": "none"}, "env": {"name": "bandit"}, "filters": []}
        return parse_recipe(base | sections, source="test")

    return build


@pytest.fixture
def run(tmp_path: Path, recipe: Callable[..., Recipe]) -> Run:
    return Run(tmp_path / "run", recipe(train=TRAIN))
