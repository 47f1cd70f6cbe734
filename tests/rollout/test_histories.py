"""Histories: which pictures a prompt shows, where branches begin, and that no token is made twice."""

from io import BytesIO
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from scripted_engine import ScriptedEngine
from test_rollout_pictures import square

from quartet import config
from quartet.errors import ConfigError
from quartet.exchange.chat import ChatLine, ChatWriter
from quartet.exchange.record import Provenance, TrajectoryRecord
from quartet.ledger.soundness import find_flaw
from quartet.policy.load import LoadedPolicy
from quartet.policy.make_vision import make_vision_policy
from quartet.policy.renderer import Renderer
from quartet.recipe.file import parse_recipe
from quartet.registry import build
from quartet.rollout.client import ModelClient
from quartet.rollout.loop.base import Limits
from quartet.types import Call, Message, Observation, Picture, Purpose, Sampling, StepResult, Task, Trajectory

TASK = Task(env="slides", family="x", seed=0)
TURNS = 13


class Slides:
    """Shows another picture in every turn."""

    def __init__(self) -> None:
        self._turn = 0

    def _observe(self) -> Observation:
        width = 24 + 8 * self._turn
        return Observation(goal="Which colour?", text="", pictures=[Picture(data=square("red", width))])

    async def reset(self, task: Task) -> Observation:
        return self._observe()

    async def step(self, action: str) -> StepResult:
        self._turn += 1
        return StepResult(observation=self._observe(), reward=1 / TURNS, terminated=self._turn == TURNS)

    async def close(self) -> None: ...


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> LoadedPolicy:
    texts = ["Which colour?", "blue", "Sum up.", "red"] * 2
    return make_vision_policy(texts, tmp_path_factory.mktemp("seeing") / "policy", hidden_size=32)


class RuledSlides(Slides):
    """Sends its rules at the reset only."""

    def _observe(self) -> Observation:
        return replace(super()._observe(), messages=[] if self._turn else [Message("system", "red blue")])


async def play(
    policy: LoadedPolicy,
    history: str,
    *,
    env: type[Slides] = Slides,
    loop: str = "screens",
    blind: bool = False,
    **own: Any,
) -> Trajectory:
    """Return a rollout; a `blind` policy reads the texts only."""
    tokenizer: Any = policy.tokenizer
    engine = ScriptedEngine(tokenizer, lambda request, index: f"blue {index}")
    renderer = Renderer(tokenizer, None if blind else policy.pictures)
    model = ModelClient(engine, renderer, sampling=Sampling(), conversation="w/1.1")
    part = build(config.Loop(name=loop), build(config.History(name=history, **own)))
    limits = Limits(max_turns=TURNS, max_tokens=8, timeout_seconds=30.0)
    (trajectory,) = await part.run(TASK, env(), {"main": model}, limits)
    assert find_flaw(trajectory) is None
    return trajectory


def extends(before: Call, after: Call) -> bool:
    said = before.prompt_ids + before.response_ids
    return after.prompt_ids[: len(said)] == said and after.media[: len(before.media)] == before.media


def branches(trajectory: Trajectory) -> list[int]:
    """Return the number of calls of each branch."""
    lengths = [1]
    for before, after in pairwise(trajectory.calls):
        lengths = [*lengths[:-1], lengths[-1] + 1] if extends(before, after) else [*lengths, 1]
    return lengths


def without_pictures(call: Call, policy: LoadedPolicy) -> list[int]:
    """Return the ids of a call that do not stand for pictures."""
    assert policy.pictures is not None
    config = policy.model.config
    marks = {config.image_token_id, config.vision_start_token_id, config.vision_end_token_id}
    return [token for token in call.prompt_ids + call.response_ids if token not in marks]


@pytest.mark.parametrize(
    ("history", "own", "shown", "lengths"),
    [
        ("all", {}, list(range(1, 14)), [13]),
        ("interval", {"min": 2, "every": 4}, [1, 2, 3, 4, 5, 2, 3, 4, 5, 2, 3, 4, 5], [5, 4, 4]),
        ("interval", {"min": 5, "every": 9}, list(range(1, 14)), [13]),
        ("sliding", {"pictures": 3}, [1, 2, *[3] * 11], [3, *[1] * 10]),
        ("sliding", {"pictures": 3, "texts": 35}, [1, 2, *[3] * 11], [3, *[1] * 10]),
        ("sliding", {"pictures": 5, "texts": 2}, [1, 2, 3, *[2] * 10], [3, *[1] * 10]),
        ("latest", {}, [1] * 13, [1] * 13),
        ("compressed", {"placeholder": "red"}, [1] * 13, [1] * 13),
    ],
)
async def test_a_history_shows_its_pictures_and_begins_branches_where_they_are_removed(
    policy, history, own, shown, lengths
):
    trajectory = await play(policy, history, **own)
    assert [len(call.media) for call in trajectory.calls] == shown
    assert branches(trajectory) == lengths
    image = policy.model.config.image_token_id
    for call, turn in zip(trajectory.calls, trajectory.turns, strict=True):
        newest = policy.pictures.prompt(turn.observation.pictures[0].data).media[0]
        assert replace(call.media[-1], offset=1) == newest
        places = [place for one in call.media for place in range(one.offset, one.offset + one.num_placeholders)]
        assert [place for place, token in enumerate(call.prompt_ids) if token == image] == places
        policy.pictures.positions(np.array(call.prompt_ids), call.media)  # raises if they do not match


class Triptychs(Slides):
    """Shows three pictures in every turn."""

    def _observe(self) -> Observation:
        width = 24 + 8 * self._turn
        pictures = [Picture(data=square(colour, width)) for colour in ("red", "blue", "green")]
        return Observation(goal="Which colour?", text="", pictures=pictures)


@pytest.mark.parametrize(
    ("history", "own", "shown"),
    [
        ("interval", {"min": 1, "every": 2}, [3] * 13),
        ("interval", {"min": 4, "every": 4}, [3, 6, 4, 7, 4, 7, 4, 7, 4, 7, 4, 7, 4]),
        ("sliding", {"pictures": 2}, [3] * 13),
        ("sliding", {"pictures": 4}, [3, *[4] * 12]),
    ],
)
async def test_no_picture_of_the_newest_observation_is_removed(policy, history, own, shown):
    trajectory = await play(policy, history, env=Triptychs, **own)
    assert [len(call.media) for call in trajectory.calls] == shown
    for call, turn in zip(trajectory.calls, trajectory.turns, strict=True):
        newest = [policy.pictures.prompt(picture.data).media[0] for picture in turn.observation.pictures]
        assert [replace(one, offset=1) for one in call.media[-3:]] == newest


@pytest.mark.parametrize(("history", "own"), [("interval", {"min": 2, "every": 3}), ("sliding", {})])
async def test_a_removal_of_pictures_changes_no_other_token(policy, history, own):
    """The texts of pruned prompts are those of the whole conversation, id by id, the sampled ones included."""
    trajectory, whole = await play(policy, history, **own), await play(policy, "all")
    assert len(branches(trajectory)) > 1
    for pruned, call in zip(trajectory.calls, whole.calls, strict=True):
        assert without_pictures(pruned, policy) == without_pictures(call, policy)


async def test_a_summary_is_a_call_whose_tokens_the_next_branch_reads(policy):
    trajectory = await play(policy, "summary", every=4, request="Sum up.")
    assert branches(trajectory) == [5, 5, 5, 1]
    summaries = [call for index, call in enumerate(trajectory.calls) if index not in acted(trajectory)]
    assert [call.key for call in summaries] == ["4", "9", "14"]
    for summary in summaries:
        following = trajectory.calls[trajectory.calls.index(summary) + 1]
        place = following.prompt_ids.index(policy.tokenizer.get_vocab()["<|assistant|>"]) + 1
        assert following.prompt_ids[place : place + len(summary.response_ids)] == summary.response_ids
        assert len(following.media) == 1
    assert len(trajectory.turns) == TURNS


@pytest.mark.parametrize(("history", "own"), [("latest", {}), ("summary", {"every": 4, "request": "Sum up."})])
async def test_every_conversation_begins_with_the_systems_messages_of_the_reset(policy, history, own):
    trajectory = await play(policy, history, env=RuledSlides, **own)
    texts = [policy.tokenizer.decode(call.prompt_ids) for call in trajectory.calls]
    (opening,) = {text.partition("red blue")[0] for text in texts}
    assert [text.count(f"{opening}red blue") for text in texts] == [1] * len(texts)


@pytest.mark.parametrize("texts", [1, 2, 3, 4, 35])
async def test_a_sliding_prompt_has_the_newest_texts_and_no_message_of_a_removed_picture(policy, texts):
    """The first message, which names the task, stays without its picture. The sampled ids are kept."""
    pictures = 3
    trajectory = await play(policy, "sliding", pictures=pictures, texts=texts)
    response = policy.tokenizer.get_vocab()["<|assistant|>"]
    whole = await play(policy, "all")
    for turn, call in enumerate(trajectory.calls):
        responses = [said.response_ids for said in trajectory.calls[max(turn - texts, 0) : turn]]
        messages = min(turn + 1, pictures) if turn <= texts else min(texts, pictures)
        assert call.prompt_ids.count(response) == len(responses) + 1
        asked = policy.tokenizer.decode(call.prompt_ids).count("Which colour?")
        assert asked == messages + (turn + 1 > messages)
        assert len(call.media) == messages
        shown = str(call.prompt_ids)
        assert [str(ids)[1:-1] in shown for ids in responses] == [True] * len(responses)
        if turn < pictures and turn <= texts:
            assert call == replace(whole.calls[turn], response=call.response)


@pytest.mark.parametrize(
    ("history", "own"), [("latest", {}), ("compressed", {}), ("sliding", {"pictures": 3, "texts": 4})]
)
async def test_the_chats_of_histories_with_one_branch_per_turn_are_what_the_policy_read(policy, history, own):
    trajectory = await play(policy, history, env=RuledSlides, **own)
    chats = build(config.History(name=history, **own)).chats(trajectory.turns)
    renderer = Renderer(policy.tokenizer)
    for chat, call in zip(chats, trajectory.calls, strict=True):
        assert renderer.start_chat(chat[:-1]).ids + renderer.response(chat[-1].content) == without_pictures(
            call, policy
        )


async def test_a_policy_that_reads_no_pictures_keeps_the_texts_beside_them(policy):
    """The exported chats have the same texts."""
    own = {"pictures": 2, "texts": 3}
    trajectory = await play(policy, "sliding", blind=True, **own)
    asked = [policy.tokenizer.decode(call.prompt_ids).count("Which colour?") for call in trajectory.calls]
    assert asked == [1, 2, 3, *[4] * (TURNS - 3)]
    file = BytesIO()
    provenance = Provenance(run="x", purpose=Purpose.TRAIN, rollout_id=1, group_id=1, attempt=1, created_at=0.0)
    record = TrajectoryRecord.of(trajectory, provenance, fingerprint=None)
    ChatWriter(file, recipe(loop="screens", history={"name": "sliding", **own})).write(record)
    chats = [msgspec.json.decode(line, type=ChatLine) for line in file.getvalue().splitlines()]
    renderer = Renderer(policy.tokenizer)
    assert [renderer.start_chat(chat.messages[:-1]).ids for chat in chats] == [
        call.prompt_ids for call in trajectory.calls
    ]


async def test_rollouts_with_summaries_are_no_chats(policy):
    """Their turns do not contain the summaries, so a chat would have texts that the policy never read together."""
    trajectory = await play(policy, "summary", every=4, request="Sum up.")
    with pytest.raises(ConfigError, match="turns do not contain the summaries"):
        build(config.History(name="summary")).chats(trajectory.turns)


class Pages(Slides):
    """Shows pages without pictures."""

    def _observe(self) -> Observation:
        return Observation(goal="Which colour?", text="blue " * 50 + f"red {self._turn}.")


async def test_only_the_newest_page_is_in_a_compressed_prompt_and_all_sampled_tokens_are(policy):
    """Without its newest page a prompt grows by the same few tokens in every turn."""
    trajectory = await play(policy, "compressed", env=Pages, placeholder="red")
    whole = await play(policy, "all", env=Pages)
    assert [call.response_ids for call in trajectory.calls] == [call.response_ids for call in whole.calls]
    for turn, call in enumerate(trajectory.calls):
        text = policy.tokenizer.decode(call.prompt_ids)
        assert [page for page in range(TURNS) if f"blue red {page}." in text] == [turn]
        assert text.count("Which colour?") == min(turn, 1) + 1
        for earlier in trajectory.calls[:turn]:
            assert str(earlier.response_ids)[1:-1] in str(call.prompt_ids)
    lengths = [len(call.prompt_ids) for call in trajectory.calls]
    assert max(lengths[9:]) - lengths[2] < len(whole.calls[0].prompt_ids) < len(whole.calls[-1].prompt_ids) / 10


def acted(trajectory: Trajectory) -> set[int]:
    return {turn.call_index for turn in trajectory.turns}


@pytest.mark.parametrize(("loop", "history"), [("append", "all"), ("latest", "latest")])
async def test_the_loops_append_and_latest_are_histories(policy, loop, history):
    assert (await play(policy, history)).calls == (await play(policy, history, loop=loop)).calls


def recipe(**rollout: Any):
    return parse_recipe({"name": "x", "model": {"path": "/m"}, "env": {"name": "bandit"}, "rollout": rollout}, "test")


def test_a_history_needs_the_loop_that_uses_it():
    with pytest.raises(ConfigError, match=r"the loop 'latest' does not use rollout\.history"):
        recipe(history={"name": "interval", "min": 2})
    assert recipe(loop="screens", history={"name": "interval", "every": 3}).rollout.history.settings == {
        "every": 3,
        "min": 5,
    }
    with pytest.raises(ConfigError, match="Did you mean 'sliding'"):
        recipe(loop="screens", history="slide")
