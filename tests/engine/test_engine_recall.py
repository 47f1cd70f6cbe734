"""A response that was cut and gone on with is, under the same weights, the one that nobody cut."""

import asyncio
from collections.abc import Callable

import pytest
from engine_models import Gate, make_model, make_requests

from quartet.engine.base import GenerateRequest
from quartet.engine.torch_engine import TorchEngine
from quartet.types import FinishReason, Sampling

pytestmark = pytest.mark.slow

Builder = Callable[..., TorchEngine]


@pytest.mark.parametrize("prefix_cache_megabytes", [0, 16])
async def test_a_cut_response_goes_on_as_if_it_had_not_been_cut(
    engine_of: Builder, prefix_cache_megabytes: int
) -> None:
    engine = engine_of(make_model(), prefix_cache_megabytes=prefix_cache_megabytes)
    prompt_ids = make_requests(1)[0].prompt_ids[:20]

    def request(name: str, prompt: list[int], max_tokens: int) -> GenerateRequest:
        sampling = Sampling(max_tokens=max_tokens, seed=7)
        return GenerateRequest(request_id=name, prompt_ids=prompt, sampling=sampling, stop_token_ids=[])

    whole = await engine.generate(request("whole", prompt_ids, 200))
    gate = Gate(engine, tokens=20)
    task = asyncio.create_task(engine.generate(request("cut", prompt_ids, 200)))
    await gate.reached()
    await engine.abort("cut")
    await gate.open()
    cut = await task
    count = len(cut.token_ids)
    assert cut.finish_reason is FinishReason.ABORT and 20 < count < 200
    assert cut.token_ids == whole.token_ids[:count]
    rest = await engine.generate(request("rest", prompt_ids + cut.token_ids, 200 - count))
    assert cut.token_ids + rest.token_ids == whole.token_ids
    assert cut.logprobs + rest.logprobs == pytest.approx(whole.logprobs, abs=1e-4)
