"""The columns of a response: whatever is done to them, they stay in step."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from quartet.engine.base import GenerateResult
from quartet.types import Call, FinishReason, Sampling, TokenColumns

NUMBERS = st.floats(-9, 0)


@st.composite
def columns(draw: st.DrawFn, *, told: bool | None = None, cached: bool | None = None) -> TokenColumns:
    """Of 0 to 6 tokens. `told` says whether somebody sampled them, `cached` whether their cache was older."""
    count = draw(st.integers(0, 6))

    def column(values: st.SearchStrategy, has: bool | None = None) -> list:
        return (
            draw(st.lists(values, min_size=count, max_size=count))
            if (draw(st.booleans()) if has is None else has)
            else []
        )

    told = draw(st.booleans()) if told is None else told
    return TokenColumns(
        token_ids=column(st.integers(0, 99), has=True),
        logprobs=column(NUMBERS, has=told),
        versions=column(st.integers(0, 9), has=told),
        entropies=column(NUMBERS),
        cache_versions=column(st.integers(0, 9), has=cached),
        top_ids=column(st.lists(st.integers(0, 99), max_size=2)),
        top_logprobs=column(st.lists(NUMBERS, max_size=2)),
    )


@given(columns(), st.data())
def test_a_response_cut_anywhere_and_joined_again_is_the_same(whole, data):
    """Three parts, and in either order of joining them."""
    first, second = sorted(data.draw(st.integers(0, len(whole))) for _ in range(2))
    a, b, c = whole[:first], whole[first:second], whole[second:]
    assert (a + b) + c == a + (b + c) == whole
    assert [len(part) for part in (a, b, c)] == [first, second - first, len(whole) - second]
    assert not any(part.mismatch for part in (a, b, c))


@given(columns(told=True), columns(told=True))
def test_joined_responses_keep_what_both_have(before, after):
    both = before + after
    assert not both.mismatch
    assert both.token_ids == before.token_ids + after.token_ids
    assert both.versions == before.versions + after.versions
    if before and after:
        assert bool(both.entropies) == (bool(before.entropies) and bool(after.entropies))
        assert bool(both.top_logprobs) == (bool(before.top_logprobs) and bool(after.top_logprobs))
        older = before.cache_versions or after.cache_versions
        expected = (before.cache_versions or before.versions) + (after.cache_versions or after.versions)
        assert both.cache_versions == (expected if older else [])


@given(columns(told=True))
def test_tokens_appended_one_by_one(whole):
    grown = TokenColumns()
    for token_id, logprob, version in zip(whole.token_ids, whole.logprobs, whole.versions, strict=True):
        grown.append(token_id, logprob=logprob, version=version, entropy=0.5, cache_version=version)
        assert not grown.mismatch
    assert (grown.token_ids, grown.logprobs, grown.versions) == (whole.token_ids, whole.logprobs, whole.versions)


@given(columns())
def test_a_part_of_an_answer_is_an_answer(whole):
    result = GenerateResult.of(whole, FinishReason.STOP, "end")
    assert result.tokens == whole
    assert (result[:2].finish_reason, result[:2].stop_string) == (FinishReason.STOP, "end")
    assert (TokenColumns() + result, whole + GenerateResult.of(TokenColumns(), FinishReason.ABORT)) == (
        result,
        GenerateResult.of(whole, FinishReason.ABORT),
    )


@given(columns())
def test_columns_come_back_from_a_record_the_same(whole):
    for codec in (msgspec.msgpack, msgspec.json):
        assert codec.decode(codec.encode(whole), type=TokenColumns) == whole


@pytest.mark.parametrize("name", TokenColumns.__struct_fields__)
def test_a_column_of_another_length_makes_no_call(name):
    whole = TokenColumns(
        token_ids=[1, 2],
        logprobs=[-1.0, -2.0],
        versions=[0, 0],
        entropies=[0.1, 0.2],
        cache_versions=[0, 0],
        top_ids=[[1], [2]],
        top_logprobs=[[-1.0], [-2.0]],
    )
    short = replace(whole, **{name: getattr(whole, name)[:1]})
    with pytest.raises(ValueError, match=f"differ in length: .*1 {name}"):
        Call(prompt_ids=[1], response=short, sampling=Sampling(), finish_reason=FinishReason.STOP)


@pytest.mark.parametrize("missing", ["logprobs", "versions"])
def test_log_probs_and_versions_come_together(missing):
    sampled = TokenColumns(token_ids=[1], logprobs=[-1.0], versions=[0])
    assert replace(sampled, **{missing: []}).mismatch
