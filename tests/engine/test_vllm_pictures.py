"""Requests with pictures to vLLM have the form that its token-in endpoint documents."""

import base64
from io import BytesIO

import pytest
from msgspec.structs import replace
from PIL import Image

from quartet.engine.base import GenerateRequest
from quartet.engine.vllm.response import Response
from quartet.engine.vllm.wire import (
    Scored,
    Span,
    StreamChoice,
    TokenLogprob,
    TokenLogprobs,
    generate_body,
    score_body,
)
from quartet.errors import PlaceholderMismatchError, WrongAnswerError
from quartet.policy.kind.qwen_vl import PictureTokens, QwenPictures
from quartet.policy.make_vision import make_processor
from quartet.types import FinishReason, Prompt, Sampling

START, IMAGE, END, VIDEO = 1, 2, 3, 4
PICTURES = QwenPictures(
    make_processor(8, 2**16),
    PictureTokens(vision_start_token_id=START, image_token_id=IMAGE, vision_end_token_id=END, video_token_id=VIDEO),
)


def encoded(width: int, height: int, form: str) -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height), "red").save(file, form)
    return file.getvalue()


SHOWN = [encoded(40, 24, "PNG"), encoded(60, 60, "JPEG")]


@pytest.fixture
def request_with_two() -> GenerateRequest:
    prompt = Prompt([9]) + PICTURES.prompt(SHOWN[0]) + Prompt([8, 7]) + PICTURES.prompt(SHOWN[1]) + Prompt([6])
    return GenerateRequest(
        request_id="r",
        prompt_ids=prompt.ids,
        media=prompt.media,
        pictures=prompt.pictures,
        sampling=Sampling(max_tokens=4),
        stop_token_ids=[0],
    )


def last_choice() -> StreamChoice:
    return StreamChoice(
        token_ids=[5],
        logprobs=TokenLogprobs([TokenLogprob(-1.0)]),
        finish_reason=FinishReason.STOP,
        weight_versions=[Span("3", 0, 1)],
    )


def test_a_prompt_has_one_placeholder_per_picture_and_the_pictures_beside_it(request_with_two: GenerateRequest):
    body = generate_body(request_with_two, "salt", PICTURES.never_sampled)
    assert body["token_ids"] == [9, START, IMAGE, END, 8, 7, START, IMAGE, END, 6]
    assert body["return_token_ids"] is True
    parts = body["content_parts"]
    assert isinstance(parts, list)
    for part, form, data, shown in zip(parts, ("png", "jpeg"), SHOWN, request_with_two.media, strict=True):
        assert part == {
            "type": "image_url",
            "url": f"data:image/{form};base64,{base64.b64encode(data).decode()}",
            "uuid": f"salt-{shown.content_hash}",
        }
    sampling = body["sampling_params"]
    assert isinstance(sampling, dict) and sampling["logit_bias"] == {str(IMAGE): -100.0, str(VIDEO): -100.0}


def test_a_request_of_text_has_no_pictures(request_with_two: GenerateRequest) -> None:
    text = replace(request_with_two, prompt_ids=[9, 8], media=[], pictures={})
    body = generate_body(text, "salt")
    assert body["token_ids"] == [9, 8]
    assert not {"content_parts", "return_token_ids"} & body.keys()
    assert "logit_bias" not in str(body)


def test_the_server_must_expand_as_the_renderer_did(request_with_two: GenerateRequest) -> None:
    ids = request_with_two.prompt_ids
    response = Response(3, ids)
    response.add(last_choice())
    with pytest.raises(ValueError, match="does not repeat the prompt"):
        response.result()
    for other in (ids[:-1], [*ids[:3], IMAGE, *ids[3:]], [*ids[:-1], 5]):
        with pytest.raises(PlaceholderMismatchError, match="first difference"):
            response.confirm(other)
    response.confirm(ids)
    assert response.result().versions == [3]


def test_the_log_probs_of_a_prompt_with_pictures_are_asked_for_with_the_pictures() -> None:
    prompt = Prompt([9]) + PICTURES.prompt(SHOWN[0]) + Prompt([8])
    body = score_body(prompt, "salt")
    assert body["token_ids"] == [9, START, IMAGE, END, 8]
    assert body["return_token_ids"] is True and body["content_parts"]
    sampling = body["sampling_params"]
    assert isinstance(sampling, dict) and (sampling["prompt_logprobs"], sampling["temperature"]) == (0, 1.0)


def test_a_scored_prompt_has_a_log_prob_for_every_token_but_the_first() -> None:
    ids = [9, IMAGE, IMAGE, 8]
    scored = Scored([None, *({token: TokenLogprob(-float(token))} for token in ids[1:])], ids)
    assert scored.logprobs(ids) == [-IMAGE, -IMAGE, -8]
    with pytest.raises(PlaceholderMismatchError, match="first difference is at token 2"):
        scored.logprobs([9, IMAGE, 8])
    with pytest.raises(WrongAnswerError, match="2 log-probs of a prompt of 4 tokens"):
        Scored(scored.prompt_logprobs[:-1], ids).logprobs(ids)
