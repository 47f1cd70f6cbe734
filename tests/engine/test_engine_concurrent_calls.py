"""Two calls of one rollout at once, through the real engine: each has its own tokens, also after a recall."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from engine_models import Gate, make_model, make_requests

from quartet.engine.torch_engine import TorchEngine
from quartet.errors import RecalledError
from quartet.rollout.client import ModelClient
from quartet.types import Call, FinishReason, Sampling

pytestmark = pytest.mark.slow

PROMPT = make_requests(1)[0].prompt_ids[:20]
KEYS = ("left", "right")


def client_of(engine: TorchEngine, partial: Sequence[Call] = (), attempt: int = 1) -> ModelClient:
    renderer: Any = SimpleNamespace(stop_token_ids=[])
    return ModelClient(engine, renderer, sampling=Sampling(seed=7), conversation=f"worker/3.{attempt}", partial=partial)


async def ask_both(model: ModelClient) -> list[Call | BaseException]:
    """From the same prompt: what tells them apart is their keys."""
    calls = (model.generate(PROMPT, 200, key=key) for key in KEYS)
    return await asyncio.gather(*calls, return_exceptions=True)


async def test_each_call_goes_on_from_its_own_tokens(engine_of: Callable[..., TorchEngine]) -> None:
    engine = engine_of(make_model())
    whole = client_of(engine)
    left, right = await ask_both(whole)
    assert isinstance(left, Call) and isinstance(right, Call)
    assert (left.key, right.key) == KEYS
    assert left.response_ids != right.response_ids and left.sampling.seed != right.sampling.seed

    cut, gate = client_of(engine, attempt=2), Gate(engine, tokens=20)
    both = asyncio.create_task(ask_both(cut))
    await gate.reached()
    recall = asyncio.create_task(cut.recall())
    await gate.open(commands=2)
    await recall
    assert all(isinstance(outcome, RecalledError) for outcome in await both)
    partial = {call.key: call for call in cut.sampled}
    assert set(partial) == set(KEYS)
    for call in (left, right):
        count = len(partial[call.key].response)
        assert 0 < count < 200 and partial[call.key].finish_reason is FinishReason.ABORT
        assert partial[call.key].response_ids == call.response_ids[:count]

    resumed = client_of(engine, cut.sampled, attempt=3)
    again = await ask_both(resumed)
    for call, former in zip(again, (left, right), strict=True):
        assert isinstance(call, Call)
        assert (call.key, call.response_ids) == (former.key, former.response_ids)
        assert call.response.logprobs == pytest.approx(former.response.logprobs, abs=1e-4)
    assert resumed.sampled == resumed.calls and not resumed.diverged


async def test_a_key_names_one_call(engine_of: Callable[..., TorchEngine]) -> None:
    model = client_of(engine_of(make_model()))
    first = await model.generate(PROMPT, 2)
    await model.generate(PROMPT, 2, key="judge")
    third = await model.generate(PROMPT, 2)
    assert (first.key, third.key, model.index_of(third)) == ("0", "2", 2)
    for key in ("judge", ""):
        with pytest.raises(ValueError, match="its own key"):
            await model.generate(PROMPT, 2, key=key)
