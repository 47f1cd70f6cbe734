"""Pictures of observations in the prompts of a rollout, and in the record of its calls."""

import hashlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from PIL import Image
from scripted_engine import ScriptedEngine, make_tokenizer

from quartet.actions.taken import taken
from quartet.config import ActionFormat, Loop
from quartet.engine.api import to_generate_request
from quartet.engine.base import GenerateRequest
from quartet.engine.completion import to_completion_request
from quartet.engine.http import HttpEngine
from quartet.engine.wire import MAX_BODY_BYTES, CompletionRequest
from quartet.errors import EnvFaultError, PictureMissingError, PictureTooLargeError, PromptTooLongError, QuartetError
from quartet.ledger import Ledger
from quartet.ledger.soundness import find_flaw
from quartet.policy.load import LoadedPolicy
from quartet.policy.make_vision import make_vision_policy
from quartet.policy.renderer import Renderer
from quartet.registry import build
from quartet.rollout.client import ModelClient
from quartet.rollout.formatted_env import FormattedEnv
from quartet.rollout.loop.base import Limits
from quartet.types import (
    Action,
    Call,
    Message,
    Observation,
    Outcome,
    Picture,
    Pointer,
    Prompt,
    Sampling,
    Status,
    StepResult,
    TakenAction,
    Task,
    Trajectory,
)
from quartet.types.frame import Point, Resized

TASK = Task(env="squares", family="colour", seed=0)
COLOURS = ("red", "blue", "red")


def square(colour: str, width: int = 40, height: int = 24) -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height), colour).save(file, "PNG")
    return file.getvalue()


class Blinking:
    """Shows a picture at the reset only. Each turn has one more record, without an action."""

    def __init__(self) -> None:
        self.acted: list[Action] = []

    async def reset(self, task: Task) -> Observation:
        return Observation(goal="", text="", pictures=[Picture(data=square("red"))])

    async def step(self, action: str) -> StepResult:
        raise AssertionError("a response in a format is not passed on as text")

    async def act(self, actions: Sequence[Action]) -> StepResult:
        self.acted += actions
        records = [*map(taken, actions), TakenAction(outcome=Outcome.PARSE_ERROR)]
        return StepResult(observation=Observation(goal="", text="dark"), reward=0, terminated=False, actions=records)

    async def close(self) -> None: ...


class Squares:
    """Shows a coloured square in each turn; the text never says which."""

    def __init__(self, **size: int) -> None:
        self.size, self.turn = size, 0

    def _observation(self) -> Observation:
        picture = Picture(data=square(COLOURS[self.turn], **self.size))
        return Observation(goal="Which colour?", text="", pictures=[picture])

    async def reset(self, task: Task) -> Observation:
        return self._observation()

    async def step(self, action: str) -> StepResult:
        right, self.turn = action == COLOURS[self.turn], self.turn + 1
        over = self.turn == len(COLOURS)
        shown = Observation(goal="", text="") if over else self._observation()
        return StepResult(observation=shown, reward=right / len(COLOURS), terminated=over)

    async def close(self) -> None: ...


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> LoadedPolicy:
    texts = ["Which colour?", *COLOURS] * 2
    return make_vision_policy(texts, tmp_path_factory.mktemp("seeing") / "policy", hidden_size=32)


async def test_points_keep_the_frame_of_the_last_picture_while_no_other_is_shown(policy):
    env, renderer = Blinking(), Renderer(policy.tokenizer, policy.pictures)
    formatted = FormattedEnv(env, build(ActionFormat(name="ui_tars")), renderer)
    frame = renderer.picture_frame((await formatted.reset(TASK)).pictures)
    assert isinstance(frame, Resized)
    for _ in range(2):
        await formatted.step("Action: click(point='<point>5 5</point>')")
    assert env.acted == [Pointer(gesture="click", places=[Point(5, 5, frame)])] * 2


class Stored(Blinking):
    """Stores that nothing has changed since the reset, and shows no picture after it is restored."""

    async def snapshot(self) -> bytes:
        return b"dark"

    async def restore(self, task: Task, snapshot: bytes) -> Observation:
        return Observation(goal="", text=snapshot.decode())


async def test_points_keep_the_frame_of_the_parents_last_picture_in_a_restored_session(policy):
    renderer, actions, child_env = Renderer(policy.tokenizer, policy.pictures), ActionFormat(name="ui_tars"), Stored()
    parent, child = (FormattedEnv(env, build(actions), renderer) for env in (Stored(), child_env))
    frame = renderer.picture_frame((await parent.reset(TASK)).pictures)
    assert (await child.restore(TASK, await parent.snapshot())).text == "dark"
    await child.step("Action: click(point='<point>5 5</point>')")
    assert child_env.acted == [Pointer(gesture="click", places=[Point(5, 5, frame)])]
    with pytest.raises(EnvFaultError, match="another version"):
        await child.restore(TASK, b"dark")


@pytest.mark.parametrize(
    ("name", "said"),
    [("ui_tars", "Action: click(point='<point>5 5</point>')"), ("location_tokens", "click <loc12><loc40>")],
)
async def test_a_record_without_an_action_has_no_text(policy, name, said):
    formatted = FormattedEnv(Blinking(), build(ActionFormat(name=name)), Renderer(policy.tokenizer, policy.pictures))
    await formatted.reset(TASK)
    assert [one.canonical for one in (await formatted.step(said)).actions] == [said, ""]


def model_of(policy: LoadedPolicy, partial: list[Call] | None = None) -> tuple[ModelClient, ScriptedEngine]:
    tokenizer: Any = policy.tokenizer
    engine = ScriptedEngine(tokenizer, lambda request, index: "blue")
    renderer = Renderer(tokenizer, policy.pictures)
    model = ModelClient(engine, renderer, sampling=Sampling(), conversation="w/1.1", partial=partial or [])
    return model, engine


async def play(loop: str, model: ModelClient, env: Squares | None = None) -> Trajectory:
    limits = Limits(max_turns=5, max_tokens=8, timeout_seconds=30.0)
    (trajectory,) = await build(Loop(name=loop)).run(TASK, env or Squares(), {"main": model}, limits)
    return trajectory


@pytest.mark.parametrize(("loop", "shown"), [("append", [1, 2, 3]), ("latest", [1, 1, 1])])
async def test_calls_name_the_pictures_that_their_prompts_show(policy: LoadedPolicy, loop: str, shown: list[int]):
    model, engine = model_of(policy)
    trajectory = await play(loop, model)
    assert trajectory.reward == pytest.approx(1 / 3)
    assert [len(call.media) for call in trajectory.calls] == shown
    image = policy.model.config.image_token_id
    for call, request in zip(trajectory.calls, engine.requests, strict=True):
        assert (call.prompt_ids, call.media) == (request.prompt_ids, request.media)
        places = [place for one in call.media for place in range(one.offset, one.offset + one.num_placeholders)]
        assert [place for place, token in enumerate(call.prompt_ids) if token == image] == places
        assert request.pictures.keys() == {one.content_hash for one in call.media}
        assert all(hashlib.sha256(data).hexdigest() == name for name, data in request.pictures.items())
    last = [hashlib.sha256(square(colour)).hexdigest() for colour in COLOURS[-shown[-1] :]]
    assert [one.content_hash for one in trajectory.calls[-1].media] == last


class AdvisedSquares(Squares):
    async def reset(self, task: Task) -> Observation:
        return replace(await super().reset(task), guidance="Say red.")


async def test_advice_beside_a_picture_fails_its_own_rollout_only(policy: LoadedPolicy) -> None:
    """A worker records an error that Quartet does not define, and ends with one of its own."""
    model, engine = model_of(policy)
    with pytest.raises(ValueError, match="guidance was added to a prompt with pictures") as raised:
        await play("append", model, AdvisedSquares())
    assert not isinstance(raised.value, QuartetError)
    assert engine.requests == []


async def test_stored_pictures_are_found_by_what_calls_name(policy: LoadedPolicy, tmp_path: Path) -> None:
    model, _ = model_of(policy)
    trajectory = await play("append", model)
    ledger = Ledger.create(tmp_path)
    packed = ledger.store.pack(trajectory)
    names = {one.content_hash for call in trajectory.calls for one in call.media}
    assert {blob.digest for blob in packed.pictures} == names
    ledger.close()


async def test_a_prompt_whose_pictures_are_not_stored_is_no_sample(policy: LoadedPolicy) -> None:
    trajectory = await play("append", model_of(policy)[0])
    assert find_flaw(trajectory) is None
    unseen = replace(trajectory.turns[1], observation=Observation(goal="", text=""))
    flaw = find_flaw(replace(trajectory, turns=[trajectory.turns[0], unseen, trajectory.turns[2]]))
    assert flaw is not None and flaw.field == "calls[1].media[1].content_hash"
    recalled = replace(trajectory, status=Status.CANCELLED, turns=[])
    assert find_flaw(recalled) is None


def test_prompts_are_those_of_the_chat_template_with_one_placeholder_expanded(policy: LoadedPolicy) -> None:
    tokenizer: Any = policy.tokenizer
    assert policy.pictures is not None
    renderer = Renderer(tokenizer, policy.pictures)
    picture = Picture(data=square("red"))
    placeholders = policy.pictures.prompt(picture.data).media[0].num_placeholders
    asked, said = [Message("user", "Which colour?")], tokenizer("blue<|end|>")["input_ids"]
    first = renderer.start_chat(asked, pictures=[picture])
    grown = renderer.extend_chat(first, said, asked, [picture])
    turn = f"<|vision_start|>{'<|image_pad|>' * placeholders}<|vision_end|>Which colour?"
    chat = [
        {"role": "user", "content": turn},
        {"role": "assistant", "content": "blue"},
        {"role": "user", "content": turn},
    ]
    for prompt, messages in ((first, chat[:1]), (grown, chat)):
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert prompt.ids == tokenizer(text)["input_ids"]
    with_role = [Message("system", "Be short."), *asked]
    (shown,) = renderer.start_chat(with_role, pictures=[picture]).media
    assert shown.offset > first.media[0].offset


def test_text_cannot_forge_a_placeholder(policy: LoadedPolicy) -> None:
    renderer: Any = Renderer(policy.tokenizer, policy.pictures)
    assert policy.model.config.image_token_id not in renderer.start("<|vision_start|><|image_pad|><|vision_end|>")


async def test_a_text_policy_is_shown_no_picture() -> None:
    tokenizer = make_tokenizer()
    engine = ScriptedEngine(tokenizer, lambda request, index: "blue")
    model = ModelClient(engine, Renderer(tokenizer), sampling=Sampling(), conversation="w/1.1")
    trajectory = await play("append", model)
    assert not any(call.media for call in trajectory.calls)
    assert all(turn.observation.pictures for turn in trajectory.turns)


async def test_response_to_another_picture_is_not_continued(policy: LoadedPolicy) -> None:
    model, _ = model_of(policy)
    calls = (await play("latest", model)).calls
    again, engine = model_of(policy, calls)
    assert (await play("latest", again)).calls == calls
    assert not engine.requests
    other = replace(calls[1], media=[replace(calls[1].media[0], content_hash="0" * 64)])
    diverging, engine = model_of(policy, [calls[0], other, calls[2]])
    await play("latest", diverging)
    assert diverging.diverged
    assert len(engine.requests) == 2


async def test_a_conversation_that_was_recalled_goes_on_with_all_its_pictures(policy: LoadedPolicy) -> None:
    model, _ = model_of(policy)
    calls = (await play("append", model)).calls
    again, engine = model_of(policy, calls[:2])
    assert (await play("append", again)).calls == calls
    (request,) = engine.requests
    assert len(request.media) == 3 and len(request.pictures) == 2


async def test_a_prompt_needs_its_pictures(policy: LoadedPolicy) -> None:
    model, _ = model_of(policy)
    assert policy.pictures is not None
    prompt = policy.pictures.prompt(square("red"))
    with pytest.raises(PictureMissingError, match=prompt.media[0].content_hash):
        await model.generate(Prompt(prompt.ids, prompt.media), 4)


async def test_a_picture_that_cannot_be_shown_is_the_environments_failure(policy: LoadedPolicy) -> None:
    model, _ = model_of(policy)
    with pytest.raises(PictureTooLargeError):
        await play("append", model, Squares(width=300, height=1))


async def test_more_pictures_than_a_request_may_hold_are_a_prompt_that_does_not_fit() -> None:
    request = GenerateRequest(
        request_id="r",
        prompt_ids=[1],
        sampling=Sampling(),
        stop_token_ids=[],
        pictures={"large": bytes(MAX_BODY_BYTES)},
    )
    with pytest.raises(PromptTooLongError, match="1 pictures"):
        await HttpEngine(lambda: None).generate(request)


async def test_pictures_travel_to_an_engine_over_http(policy: LoadedPolicy) -> None:
    model, engine = model_of(policy)
    await play("append", model)
    for request in engine.requests:
        body = msgspec.json.encode(to_completion_request(request, 0.0, 0.0))
        assert to_generate_request(msgspec.json.decode(body, type=CompletionRequest)) == request
