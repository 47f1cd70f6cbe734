"""Rounding depends on how many requests are computed together; a response may only where a draw is a hair from another.

Version and requests are fixed, weights are in float32.
"""

import asyncio
from collections.abc import Callable

import numpy as np
import pytest
from engine_models import VOCAB_SIZE, make_model, make_requests, reference_logprobs
from msgspec.structs import replace
from transformers import PreTrainedModel

from quartet.engine.base import GenerateRequest
from quartet.engine.sampling import uniform
from quartet.engine.torch_engine import TorchEngine

pytestmark = pytest.mark.slow

Builder = Callable[..., TorchEngine]
MAX_SLOTS = (1, 7, 64)
"""Requests computed together."""


async def responses_by_shape(engine_of: Builder, requests: list[GenerateRequest]) -> list[list[list[int]]]:
    """The responses once per number of slots; what one request computed is no other's prefix."""
    engines = [engine_of(make_model(), max_slots=slots, prefix_cache_megabytes=0) for slots in MAX_SLOTS]
    results = [await asyncio.gather(*map(engine.generate, requests)) for engine in engines]
    return [[result.token_ids for result in of_shape] for of_shape in results]


def require_a_boundary(model: PreTrainedModel, request: GenerateRequest, one: list[int], other: list[int]) -> None:
    """Two responses part where the number drawn is a hair from the boundary between two tokens."""
    first = next(index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    probs = reference_logprobs(model, request, one)[first].double().exp()
    drawn = uniform([request.sampling.seed], [len(request.prompt_ids) + first])[0]
    assert (probs.cumsum(-1) / probs.sum() - drawn).abs().min() < 1e-5


async def test_999_of_1000_responses_are_the_same(engine_of: Builder) -> None:
    model, requests = make_model(), make_requests(1000, max_prompt=8, max_response=3)
    alone, *others = await responses_by_shape(engine_of, requests)
    for responses in others:
        pairs = zip(requests, alone, responses, strict=True)
        differing = [(request, one, other) for request, one, other in pairs if one != other]
        assert len(differing) <= 0.001 * len(requests)
        for request, one, other in differing:
            require_a_boundary(model, request, one, other)


async def test_draws_a_hair_from_a_boundary_fall_to_one_side_of_it(engine_of: Builder) -> None:
    """The two hundred of a million draws where rounding is most likely to decide."""
    model, request = make_model(), make_requests(1, max_response=1)[0]
    cumulative = reference_logprobs(model, request, [0])[0].double().exp().cumsum(-1).numpy()
    seeds = list(range(1_000_000))
    drawn = uniform(seeds, [len(request.prompt_ids)] * len(seeds))
    above = np.searchsorted(cumulative, drawn).clip(1, VOCAB_SIZE - 1)
    distances = np.minimum(abs(cumulative[above] - drawn), abs(cumulative[above - 1] - drawn))
    closest = np.argsort(distances)[:200].tolist()
    samplings = [replace(request.sampling, seed=seed) for seed in closest]
    requests = [replace(request, request_id=str(s.seed), sampling=s) for s in samplings]
    lowest = np.searchsorted(cumulative, drawn[closest] - 1e-5).tolist()
    highest = np.searchsorted(cumulative, drawn[closest] + 1e-5).tolist()
    for responses in await responses_by_shape(engine_of, requests):
        for low, (token,), high in zip(lowest, responses, highest, strict=True):
            assert low <= token <= high
