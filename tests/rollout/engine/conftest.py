"""Fixtures of the engine's tests."""

from collections.abc import AsyncIterator, Callable

import pytest
import torch
from engine_models import MAX_CONTEXT_TOKENS
from transformers import PreTrainedModel

from quartet.config import Engine
from quartet.rollout.engine.torch_engine import TorchEngine


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
async def engine_of() -> AsyncIterator[Callable[..., TorchEngine]]:
    """Builds engines that are closed when the test ends."""
    engines: list[TorchEngine] = []

    def build(model: PreTrainedModel, *, version: int = 0, **config: int) -> TorchEngine:
        settings = {"max_slots": 8, "max_context_tokens": MAX_CONTEXT_TOKENS} | config
        engines.append(TorchEngine(model, version, Engine(**settings)))  # type: ignore[arg-type]
        return engines[-1]

    yield build
    for engine in engines:
        await engine.close()
