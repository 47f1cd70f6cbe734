"""What a server is asked for when the beginning of a response is there already."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.openai.stream import Partial, StreamChoice, StreamLogprobs, completion_body
from quartet.engine.partial import rest_of
from quartet.engine.vllm.response import Response
from quartet.engine.vllm.wire import Span, TokenLogprob, TokenLogprobs, generate_body
from quartet.engine.vllm.wire import StreamChoice as VllmChoice
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
def test_complete_response_keeps_its_finish_reason_when_aborted(count: int, last_id: int, reason: FinishReason) -> None:
    """The server's own word may have been lost; a rest of no tokens would be refused, attempt after attempt."""
    request = GenerateRequest(request_id="r", prompt_ids=[1, 2], sampling=Sampling(max_tokens=8), stop_token_ids=[9])
    partial = Partial()
    partial.add(StreamChoice(token_ids=[5] * (count - 1) + [last_id], logprobs=StreamLogprobs([-1.0] * count)), 0)
    partial.aborted = True
    assert partial.result(request).finish_reason is reason


def vllm_choice(count: int, **end: Any) -> VllmChoice:
    return VllmChoice(token_ids=[5] * count, logprobs=TokenLogprobs([TokenLogprob(-1.0)] * count), **end)


@given(counts=st.lists(st.integers(0, 4), min_size=1, max_size=6), changes=st.lists(st.integers(0, 5), max_size=3))
def test_partial_response_of_vllm_is_a_prefix_of_the_final_one(counts: list[int], changes: list[int]) -> None:
    """New weights come before the events `changes`, each with a version of its own."""
    response, version, versions, told = Response(3), 3, list[int](), list[GenerateResult]()
    for index, count in enumerate(counts):
        if index in changes:
            version += 1
            response.weights_change()
        versions += [version] * count
        spans = [Span(str(each), i, i + 1) for i, each in enumerate(versions)]
        end = {"finish_reason": FinishReason.LENGTH, "weight_versions": spans} if index == len(counts) - 1 else {}
        response.add(vllm_choice(count, **end))
        told.append(response.so_far())
    result = response.result()
    assert result.versions == versions and result.finish_reason is FinishReason.LENGTH
    for part in told:
        count = len(part.token_ids)
        assert (part.token_ids, part.versions) == (result.token_ids[:count], versions[:count])
    assert len(told[-1].token_ids) == versions.count(3)


@pytest.mark.parametrize(
    ("end", "problem"),
    [
        ({}, "no finish reason"),
        ({"finish_reason": FinishReason.LENGTH}, "no weight versions"),
        ({"finish_reason": FinishReason.LENGTH, "weight_versions": [Span("0", 1, 2)]}, "gap"),
        ({"logprobs": None}, "0 log-probs for 2 tokens"),
    ],
)
def test_a_stream_of_vllm_that_lacks_what_training_needs_is_refused(end: dict[str, Any], problem: str) -> None:
    response = Response(0)
    with pytest.raises(ValueError, match=problem):
        response.add(replace(vllm_choice(2), **end))
        response.result()


@pytest.mark.parametrize(("told", "reason"), [("abort", FinishReason.ABORT), ("length", FinishReason.LENGTH)])
def test_a_response_that_the_server_itself_aborts_is_not_complete(told: str, reason: FinishReason) -> None:
    """The router then continues it, as at the end of an engine."""
    request = GenerateRequest(request_id="r", prompt_ids=[1], sampling=Sampling(max_tokens=9), stop_token_ids=[])
    partial = Partial()
    partial.add(StreamChoice(token_ids=[5], logprobs=StreamLogprobs(token_logprobs=[-1.0]), finish_reason=told), 3)
    assert partial.has_ended(request) and partial.result(request).finish_reason is reason
