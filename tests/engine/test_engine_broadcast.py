"""Engines receive new weights from the trainer's memory with requests in flight, and read the file where that fails."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from engine_models import Gate, make_model, make_requests, make_word_tokenizer
from msgspec.structs import replace

from quartet.config import Publisher
from quartet.engine.torch_engine import TorchEngine
from quartet.policy.transfer import OFFER_FILE
from quartet.registry import build
from quartet.train.publish import publish_policy
from quartet.types import Sampling

pytestmark = pytest.mark.slow

Builder = Callable[..., TorchEngine]


class Publishing:
    """Trainer that publishes versions of one model in float32."""

    def __init__(self, root: Path) -> None:
        self._root, self._publisher = root, build(Publisher(name="broadcast"))
        self.version = 0

    def next(self) -> Path:
        self.version += 1
        folder = self._root / f"v{self.version}"
        model = make_model(seed=self.version)
        publish_policy(model, make_word_tokenizer(), folder, [], dtype=torch.float32, publisher=self._publisher)
        return folder


async def test_engines_take_versions_each_at_its_own_time(
    engine_of: Builder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer, requests = Publishing(tmp_path), make_requests(3)
    first, second = engine_of(make_model(), publisher="broadcast"), engine_of(make_model(), publisher="broadcast")
    gate = Gate(first, tokens=10)
    sampling = Sampling(max_tokens=150, seed=1)
    tasks = [asyncio.create_task(first.generate(replace(request, sampling=sampling))) for request in requests]
    await gate.reached()
    one, two = trainer.next(), trainer.next()
    loading = asyncio.create_task(first.load_policy(one, 1))
    assert await second.load_policy(two, 2)
    await gate.open(commands=1)
    assert (await loading).canary_gap is not None
    await first.load_policy(two, 2)
    with caplog.at_level(logging.WARNING):
        assert "reading the whole weights" not in caplog.text
        three, _, _ = trainer.next(), trainer.next(), trainer.next()
        await second.load_policy(three, 3)  # the trainer has forgotten it
        assert "has forgotten version v3" in caplog.text
    (three / OFFER_FILE).unlink()  # as of a policy that another program wrote
    (three / "checksums.json").unlink()
    await first.load_policy(three, 3)
    for result in await asyncio.gather(*tasks):
        assert len(result.token_ids) == 150 and {0, 1} <= set(result.versions)
    for request in requests:
        ours, theirs = await first.generate(request), await second.generate(request)
        assert ours.token_ids == theirs.token_ids
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
