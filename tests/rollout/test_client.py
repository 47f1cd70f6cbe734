"""The model client: calls recorded exactly, nonsense refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scripted_engine import ScriptedEngine, make_tokenizer

from quartet.errors import EngineError, PromptTooLongError
from quartet.rollout.client import ModelClient, call_seed
from quartet.rollout.renderer import Renderer
from quartet.types import FinishReason, Sampling

TOKENIZER = make_tokenizer()


def client_of(answer) -> tuple[ModelClient, ScriptedEngine]:
    engine = ScriptedEngine(TOKENIZER, lambda request, index: answer)
    model = ModelClient(
        engine, Renderer(TOKENIZER), sampling_seed=11, temperature=0.7, top_p=0.9, conversation="worker/3.1"
    )
    return model, engine


async def test_a_call_is_recorded_exactly_as_sampled():
    model, engine = client_of("click left [1]")
    first = await model.generate([1, 2, 3], 32)
    second = await model.generate([1, 2, 3, 4], 8)
    assert model.calls == [first, second]
    sampled = engine.result("click left [1]")
    assert (first.response_ids, first.logprobs) == (sampled.token_ids, sampled.logprobs)
    assert first.versions == [7] * len(sampled.token_ids)
    assert first.prompt_ids == [1, 2, 3]
    assert first.sampling == Sampling(temperature=0.7, top_p=0.9, max_tokens=32, seed=call_seed(11, 0))
    assert second.sampling.seed == call_seed(11, 1) != first.sampling.seed
    assert [request.request_id for request in engine.requests] == ["worker/3.1/0", "worker/3.1/1"]
    assert engine.requests[0].stop_token_ids == [TOKENIZER.eos_token_id]


@given(st.integers(0, 2**63 - 1), st.integers(0, 100))
def test_call_seeds_fit_a_signed_64_bit_integer_and_repeat(sampling_seed, index):
    assert 0 <= call_seed(sampling_seed, index) < 2**63
    assert call_seed(sampling_seed, index) == call_seed(sampling_seed, index)
    assert call_seed(sampling_seed, index) != call_seed(sampling_seed, index + 1)


GOOD = ScriptedEngine(TOKENIZER, lambda request, index: "").result("ab")


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (replace(GOOD, finish_reason=FinishReason.ABORT), "gave the request up"),
        (replace(GOOD, token_ids=[], logprobs=[], versions=[]), "sampled 0 tokens"),
        (replace(GOOD, token_ids=[4] * 9, logprobs=[-1.0] * 9, versions=[0] * 9), "sampled 9 tokens, asked for 1 to 8"),
        (replace(GOOD, logprobs=[-1.0]), "1 log-probs"),
        (replace(GOOD, versions=[7]), "1 versions"),
        (replace(GOOD, logprobs=[-1.0, math.nan, -1.0]), "log-probs that are none"),
        (replace(GOOD, logprobs=[-1.0, 0.5, -1.0]), "log-probs that are none"),
        (replace(GOOD, versions=[7, 6, 7]), "go backwards"),
        (replace(GOOD, versions=[-1, 6, 7]), "go backwards"),
    ],
)
async def test_what_cannot_be_a_sample_is_an_engine_error_and_not_recorded(bad, problem):
    model, _ = client_of(bad)
    with pytest.raises(EngineError, match=problem):
        await model.generate([1, 2], 8)
    assert model.calls == []


async def test_a_prompt_that_does_not_fit_is_raised_as_such():
    model, _ = client_of(PromptTooLongError("prompt of 9 tokens, context of 8"))
    with pytest.raises(PromptTooLongError):
        await model.generate([1] * 9, 8)
    assert model.calls == []
