"""What a server is asked for when the beginning of a response is there already."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.rollout.engine.base import GenerateRequest, GenerateResult
from quartet.rollout.engine.openai.stream import Partial, StreamChoice, StreamLogprobs, completion_body
from quartet.rollout.engine.partial import rest_of
from quartet.rollout.engine.vllm.wire import generate_body
from quartet.types import FinishReason, Sampling

BODIES: dict[str, Callable[[GenerateRequest], dict[str, Any]]] = {
    "vllm": lambda request: dict(generate_body(request, "salt")["sampling_params"]),  # type: ignore[call-overload]
    "openai": lambda request: completion_body("policy", request, plain=False),
    "openai, plain": lambda request: completion_body("policy", request, plain=True),
}


@pytest.mark.parametrize("kind", BODIES)
@given(seed=st.integers(0, 2**63 - 1), counts=st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_every_rest_has_a_seed_of_its_own(kind: str, seed: int, counts: list[int]) -> None:
    sampling = Sampling(max_tokens=200, seed=seed)
    request = GenerateRequest(request_id="r", prompt_ids=[1, 2], sampling=sampling, stop_token_ids=[])
    seeds = [BODIES[kind](request)["seed"]]
    assert seeds == [seed]
    for count in counts:
        ids = [3] * count
        part = GenerateResult(token_ids=ids, logprobs=[0.0] * count, versions=ids, finish_reason=FinishReason.ABORT)
        request = rest_of(request, part)
        seeds.append(BODIES[kind](request)["seed"])
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= each < 2**63 for each in seeds)


@pytest.mark.parametrize(
    ("count", "last_id", "reason"),
    [(3, 5, FinishReason.ABORT), (8, 5, FinishReason.LENGTH), (3, 9, FinishReason.STOP)],
)
def test_what_is_whole_when_it_is_aborted_has_no_rest(count: int, last_id: int, reason: FinishReason) -> None:
    """The server's own word may have been lost; a rest of no tokens would be refused, attempt after attempt."""
    request = GenerateRequest(request_id="r", prompt_ids=[1, 2], sampling=Sampling(max_tokens=8), stop_token_ids=[9])
    partial = Partial()
    partial.add(StreamChoice(token_ids=[5] * (count - 1) + [last_id], logprobs=StreamLogprobs([-1.0] * count)), 0)
    partial.aborted = True
    assert partial.result(request).finish_reason is reason
