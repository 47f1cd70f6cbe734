"""How a response ends: stop tokens, stop strings, not before `min_tokens`. What was sampled is never cut."""

from collections.abc import Callable
from itertools import takewhile

import pytest
from engine_models import VOCAB_SIZE, make_model, make_requests, make_tokenizer, reference_logprobs
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.partial import rest_of
from quartet.engine.result_check import find_problem
from quartet.engine.stop_strings import StopStrings
from quartet.engine.torch_engine import TorchEngine
from quartet.errors import RefusedRequestError
from quartet.types import FinishReason, Sampling, TokenColumns

pytestmark = pytest.mark.slow

Builder = Callable[..., TorchEngine]
TOKENIZER = make_tokenizer()


def leading_spaces() -> PreTrainedTokenizerFast:
    """As sentencepiece: a word carries the space before it, and the first word of a text loses it."""
    words = [*"abc", "▁", "▁a", "▁bc", "ab", "c▁a"]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="a"))
    tokenizer.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


SPACED = leading_spaces()


def text_of(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


@pytest.mark.parametrize("tokenizer", [TOKENIZER, SPACED])
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_a_stop_string_is_found_at_the_token_that_completes_it(
    tokenizer: PreTrainedTokenizerFast, data: st.DataObject
) -> None:
    """As in the text of the whole response, which is decoded anew for every token here."""
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), min_size=1, max_size=60))
    text = text_of(tokenizer, ids)
    starts = data.draw(st.lists(st.integers(0, len(text)), min_size=1, max_size=3))
    strings = [text[start : start + data.draw(st.integers(1, 5))] for start in starts]
    strings = [string for string in strings if string and "\ufffd" not in string] or ["never there"]
    found = StopStrings(strings, tokenizer)
    before = ""
    for end in range(1, len(ids) + 1):
        text = text_of(tokenizer, ids[:end])
        kept = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(before, text, strict=False))))
        completed = [s for s in strings if s in text and text.rindex(s) + len(s) > kept]
        assert found.completed(ids[:end]) == (completed[0] if completed else "")
        before = text


def test_looking_for_a_stop_string_costs_the_same_at_every_token() -> None:
    decoded: list[int] = []

    class Counting:
        def decode(self, ids: list[int], **_: bool) -> str:
            decoded.append(len(ids))
            return "ab" * len(ids)

    found = StopStrings(["aba", "xyz"], Counting())  # type: ignore[arg-type]
    for length in range(1, 3000):
        assert found.completed([0] * length) == ("aba" if length > 1 else "")
    assert max(decoded) < 10


@pytest.fixture
def engine(engine_of: Builder) -> TorchEngine:
    return engine_of(make_model(), tokenizer=TOKENIZER)


def long_request(**sampling: float) -> GenerateRequest:
    return replace(make_requests(1)[0], sampling=Sampling(seed=3, max_tokens=40, **sampling))  # type: ignore[arg-type]


async def test_a_stop_string_ends_the_response_and_cuts_no_token(engine: TorchEngine) -> None:
    request = long_request()
    free = await engine.generate(request)
    text = text_of(TOKENIZER, free.token_ids)
    stop = text[len(text) // 2 :][:3]
    stopped = await engine.generate(replace(request, stop_strings=["never there", stop]))
    count = next(n for n in range(1, 41) if stop in text_of(TOKENIZER, free.token_ids[:n]))
    assert stopped.token_ids == free.token_ids[:count]
    assert stopped.logprobs == pytest.approx(free.logprobs[:count], abs=1e-5)
    assert len(stopped.entropies) == len(stopped.versions) == count < 40
    assert (stopped.finish_reason, stopped.stop_string) == (FinishReason.STOP, stop)
    assert free.stop_string == ""


@pytest.mark.parametrize("limits", [{}, {"min_tokens": 12}])
async def test_a_response_in_parts_ends_where_it_does_in_one_piece(limits: dict, engine: TorchEngine) -> None:
    """Also where a stop string begins in one part and ends in the next."""
    request = long_request(**limits)
    free = await engine.generate(request)
    text = text_of(TOKENIZER, free.token_ids)
    request = replace(request, stop_strings=[text[len(text) // 2 :][:3]])
    whole = await engine.generate(request)
    for cut in range(1, len(whole.token_ids)):
        short = replace(request, sampling=replace(request.sampling, max_tokens=cut, min_tokens=0), stop_strings=[])
        part = await engine.generate(short)
        result = part + await engine.generate(rest_of(request, part))
        assert (result.token_ids, result.finish_reason) == (whole.token_ids, FinishReason.STOP)
        assert result.entropies == pytest.approx(whole.entropies, abs=1e-4)


async def test_a_stop_string_is_looked_for_in_the_response_alone(engine: TorchEngine) -> None:
    request = long_request(temperature=0.0)
    prompted = replace(request, prompt_ids=TOKENIZER("torch", add_special_tokens=False)["input_ids"])
    result = await engine.generate(replace(prompted, stop_strings=["torch"]))
    assert result.finish_reason is FinishReason.LENGTH


async def test_none_of_the_first_min_tokens_ends_the_response(engine: TorchEngine) -> None:
    """Stop tokens cannot be drawn until then, and log-probs are of what could; stop strings are passed over."""
    model, stops = make_model(), list(range(0, VOCAB_SIZE, 2))
    for index, request in enumerate(make_requests(8, min_tokens=3)):
        sampling = replace(request.sampling, max_tokens=20)
        request = replace(request, sampling=sampling, stop_token_ids=stops, stop_strings=[chr(97 + index)])
        result = await engine.generate(request)
        assert len(result.token_ids) > 3
        whole = reference_logprobs(model, request, result.token_ids)
        possible = whole.clone()
        possible[:3, ::2] = -float("inf")
        expected = possible.log_softmax(-1)[range(len(result.token_ids)), result.token_ids]
        assert result.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
        assert result.entropies == pytest.approx((-whole.exp() * whole).sum(-1).tolist(), abs=1e-4)
        assert result.finish_reason is FinishReason.STOP


async def test_a_stop_string_within_min_tokens_does_not_end_the_response_later(engine: TorchEngine) -> None:
    free = await engine.generate(long_request())
    early = text_of(TOKENIZER, free.token_ids[:2])
    assert early and text_of(TOKENIZER, free.token_ids).count(early) == 1
    going_on = await engine.generate(replace(long_request(min_tokens=2), stop_strings=[early]))
    assert (going_on.token_ids, going_on.finish_reason) == (free.token_ids, FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"stop_token_ids": [VOCAB_SIZE]}, "stop tokens from 512"),
        ({"stop_token_ids": [-1]}, "stop tokens from -1"),
        ({"stop_strings": [""]}, "empty stop string"),
        ({"sampling": Sampling(max_tokens=3, min_tokens=4)}, "min_tokens = 4 above max_tokens"),
    ],
)
async def test_ends_that_make_no_sense_are_refused(change: dict, says: str, engine: TorchEngine) -> None:
    with pytest.raises(RefusedRequestError, match=says):
        await engine.generate(replace(long_request(), **change))


async def test_stop_strings_need_a_tokenizer(engine_of: Builder) -> None:
    with pytest.raises(RefusedRequestError, match="without a tokenizer"):
        await engine_of(make_model()).generate(replace(long_request(), stop_strings=["x"]))


def test_a_server_that_samples_on_after_a_stop_token_is_found_out() -> None:
    """SGLang does so if a request ignores the end token."""
    request = GenerateRequest(request_id="a", prompt_ids=[1], sampling=Sampling(max_tokens=9), stop_token_ids=[7])
    for ids, problem in (([3, 7, 4], "further tokens after a stop token"), ([3, 4], ""), ([3, 7], "")):
        columns = TokenColumns(token_ids=ids, logprobs=[-1.0] * len(ids), versions=[0] * len(ids))
        reason = FinishReason.STOP if ids[-1] == 7 else FinishReason.LENGTH
        assert problem in (found := find_problem(request, GenerateResult.of(columns, reason)))
        assert bool(found) == bool(problem)
