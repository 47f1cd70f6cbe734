"""The model client: calls recorded exactly, nonsense refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scripted_engine import ScriptedEngine, make_tokenizer

from quartet.errors import EngineError, PromptTooLongError, RecalledError
from quartet.ledger.soundness import find_flaw
from quartet.policy.renderer import Renderer
from quartet.rollout.client import ModelClient, call_seed
from quartet.types import FinishReason, Sampling, Task
from tests.ledger.samples import trajectory

TOKENIZER = make_tokenizer()


def client_of(answer) -> tuple[ModelClient, ScriptedEngine]:
    engine = ScriptedEngine(TOKENIZER, lambda request, index: answer)
    sampling = Sampling(temperature=0.7, top_k=9, top_p=0.9, min_tokens=1, seed=11)
    model = ModelClient(engine, Renderer(TOKENIZER), sampling=sampling, stop_strings=["]"], conversation="worker/3.1")
    return model, engine


async def test_a_call_is_recorded_exactly_as_sampled():
    model, engine = client_of("click left [1]")
    first = await model.generate([1, 2, 3], 32)
    second = await model.generate([1, 2, 3, 4], 8)
    assert model.calls == [first, second]
    sampled = engine.result("click left [1]")
    assert (first.response_ids, first.response.logprobs) == (sampled.token_ids, sampled.logprobs)
    assert first.response.versions == [7] * len(sampled.token_ids)
    assert first.prompt_ids == [1, 2, 3]
    sampling = Sampling(temperature=0.7, top_k=9, top_p=0.9, min_tokens=1, max_tokens=32, seed=call_seed(11, "0"))
    assert first.sampling == sampling
    assert first.response.entropies == sampled.entropies != []
    assert second.sampling.seed == call_seed(11, "1") != first.sampling.seed
    assert [request.request_id for request in engine.requests] == ["worker/3.1/0", "worker/3.1/1"]
    assert engine.requests[0].stop_token_ids == [TOKENIZER.eos_token_id]
    assert engine.requests[0].stop_strings == ["]"]


@given(st.integers(0, 2**63 - 1), st.integers(0, 100))
def test_call_seeds_fit_a_signed_64_bit_integer_and_repeat(sampling_seed, index):
    assert 0 <= call_seed(sampling_seed, str(index)) < 2**63
    assert call_seed(sampling_seed, str(index)) == call_seed(sampling_seed, str(index))
    assert call_seed(sampling_seed, str(index)) != call_seed(sampling_seed, str(index + 1))


GOOD = ScriptedEngine(TOKENIZER, lambda request, index: "").result("ab")


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (replace(GOOD, finish_reason=FinishReason.ABORT), "aborted the request"),
        (replace(GOOD, token_ids=[], logprobs=[], versions=[]), "sampled 0 tokens"),
        (replace(GOOD, token_ids=[4] * 9, logprobs=[-1.0] * 9, versions=[0] * 9), "sampled 9 tokens instead of 1 to 8"),
        (replace(GOOD, logprobs=[-1.0]), "1 logprobs"),
        (replace(GOOD, versions=[7]), "1 versions"),
        (replace(GOOD, logprobs=[-1.0, math.nan, -1.0]), "invalid log-probs"),
        (replace(GOOD, logprobs=[-1.0, 0.5, -1.0]), "invalid log-probs"),
        (replace(GOOD, entropies=[0.7]), "1 entropies"),
        (replace(GOOD, entropies=[0.7, math.nan, 0.7]), "invalid entropies"),
        (replace(GOOD, entropies=[0.7, -0.5, 0.7]), "invalid entropies"),
        (replace(GOOD, token_ids=[4] * 3), "without a stop token"),
        (replace(GOOD, token_ids=[4] * 3, stop_string="["), "without a stop token"),
        (
            replace(GOOD, token_ids=GOOD.token_ids[-1:], logprobs=[-1.0], versions=[7], entropies=[]),
            "before min_tokens",
        ),
        (replace(GOOD, versions=[7, 6, 7]), "go backwards"),
        (replace(GOOD, versions=[-1, 6, 7]), "go backwards"),
    ],
)
async def test_invalid_sample_is_an_engine_error_and_is_not_recorded(bad, problem):
    model, _ = client_of(bad)
    with pytest.raises(EngineError, match=problem):
        await model.generate([1, 2], 8)
    assert model.calls == []


@pytest.mark.parametrize("good", [GOOD, replace(GOOD, entropies=[]), replace(GOOD, token_ids=[4] * 3, stop_string="]")])
async def test_an_engine_may_send_no_entropies_and_stop_at_a_string(good):
    model, _ = client_of(good)
    call = await model.generate([1, 2], 8)
    assert (call.response_ids, call.response.entropies) == (good.token_ids, good.entropies)


async def test_a_prompt_that_does_not_fit_is_raised_as_such():
    model, _ = client_of(PromptTooLongError("prompt of 9 tokens, context of 8"))
    with pytest.raises(PromptTooLongError):
        await model.generate([1] * 9, 8)
    assert model.calls == []


def resumed(script, partial) -> tuple[ModelClient, ScriptedEngine]:
    engine = ScriptedEngine(TOKENIZER, script)
    model = ModelClient(
        engine,
        Renderer(TOKENIZER),
        sampling=Sampling(temperature=0.7, seed=11),
        conversation="worker/3.2",
        partial=partial,
    )
    return model, engine


async def recalled_in_the_second_call(tokens: int) -> tuple[ModelClient, ScriptedEngine]:
    """Its first call is whole, its second one was cut after so many tokens."""
    model, engine = resumed(lambda request, index: "click left [1]" if index == 0 else cut(model, tokens), [])
    await model.generate([1, 2, 3], 32)
    with pytest.raises(RecalledError):
        await model.generate([1, 2, 3, 4], 8)
    return model, engine


def cut(model: ModelClient, tokens: int):
    model.recalled = True  # as `recall` does, which then aborts what is in flight
    return replace(GOOD[:tokens], finish_reason=FinishReason.ABORT)


@pytest.mark.parametrize("tokens", [0, 1])
async def test_the_next_attempt_is_answered_from_the_partial_and_goes_on_in_mid_response(tokens):
    before, engine = await recalled_in_the_second_call(tokens)
    partial = before.sampled
    assert [len(call.response_ids) for call in partial] == [len(before.calls[0].response_ids), tokens]
    after, again = resumed(lambda request, index: engine.result("ok", version=8), partial)
    first = await after.generate([1, 2, 3], 32)
    assert (first, again.requests) == (before.calls[0], []), "no engine was asked"
    second = await after.generate([1, 2, 3, 4], 8)
    (request,) = again.requests
    assert request.prompt_ids == [1, 2, 3, 4, *partial[1].response_ids]
    assert (request.begun_tokens, request.sampling.max_tokens) == (tokens, 8 - tokens)
    assert request.sampling.seed == engine.requests[1].sampling.seed
    rest = engine.result("ok")
    assert second.prompt_ids == [1, 2, 3, 4]
    assert second.response_ids == partial[1].response_ids + rest.token_ids
    assert second.response.logprobs == partial[1].response.logprobs + rest.logprobs
    assert second.response.entropies == partial[1].response.entropies + rest.entropies
    assert second.response.versions == [7] * tokens + [8] * len(rest.token_ids)
    assert (second.sampling.max_tokens, second.finish_reason) == (8, FinishReason.STOP)
    assert after.sampled == after.calls == [first, second]
    assert not after.diverged


async def test_the_rest_of_a_cut_call_may_be_of_an_older_version_and_each_token_has_its_own():
    """Engines load weights one after another. The lag of each token is measured, so none has to be sampled again."""
    before, _ = await recalled_in_the_second_call(2)
    after, again = resumed(lambda request, index: again.result("ok", version=6), before.sampled)
    await after.generate([1, 2, 3], 32)
    second = await after.generate([1, 2, 3, 4], 8)
    rest = again.result("ok").token_ids
    assert second.response.versions == [7] * 2 + [6] * len(rest)
    whole = trajectory(Task(env="bandit", family="fixed", seed=0), reward=1.0)
    assert find_flaw(replace(whole, calls=after.calls)) is None


async def test_a_call_says_how_old_its_cache_was():
    kept = replace(GOOD, cache_versions=[5] * len(GOOD.token_ids))
    model, _ = client_of(kept)
    assert (await model.generate([1, 2], 8)).response.cache_versions == kept.cache_versions
    partial = replace(model.calls[0], finish_reason=FinishReason.ABORT)
    after, _ = resumed(lambda request, index: GOOD, [partial])
    assert (await after.generate([1, 2], 8)).response.cache_versions == kept.cache_versions + GOOD.versions


async def test_unused_partial_calls_survive_another_recall():
    before, _ = await recalled_in_the_second_call(1)
    after, _ = resumed(lambda request, index: "unused", before.sampled)
    await after.generate([1, 2, 3], 32)
    await after.recall()
    with pytest.raises(RecalledError):
        await after.generate([1, 2, 3, 4], 8)
    assert after.sampled == before.sampled


async def test_another_prompt_ends_the_use_of_the_partial():
    before, _ = await recalled_in_the_second_call(1)
    after, again = resumed(lambda request, index: "click right [2]", before.sampled)
    await after.generate([9, 9], 32)
    second = await after.generate([1, 2, 3, 4], 8)
    assert after.diverged
    assert [request.prompt_ids for request in again.requests] == [[9, 9], [1, 2, 3, 4]]
    assert after.sampled == after.calls and second.response.versions == [7] * len(second.response_ids)
