"""Export and import: what leaves the ledger comes back the same, and says what it is."""

import hashlib
import io
import json
import math
import re
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from quartet.errors import ConfigError, LedgerError
from quartet.exchange.chat import ChatLine, ChatWriter, read_chat_trajectories
from quartet.exchange.export import export
from quartet.exchange.fingerprint import Fingerprint
from quartet.exchange.jsonl import JsonlWriter, read_jsonl
from quartet.exchange.parquet import ParquetWriter, read_parquet
from quartet.exchange.record import Provenance, TrajectoryRecord
from quartet.exchange.stored import Selection, stored_trajectories
from quartet.policy.chat import decode_chat
from quartet.policy.renderer import Renderer
from quartet.types import (
    Call,
    FinishReason,
    Fork,
    Function,
    Keyboard,
    Media,
    Message,
    Observation,
    Outcome,
    Picture,
    Pointer,
    Purpose,
    Sampling,
    Status,
    TakenAction,
    Task,
    Text,
    TokenColumns,
    Tool,
    ToolCall,
    Trajectory,
    Turn,
)
from quartet.types.frame import Element, Point, Resized, Screen, Unit
from tests.ledger.samples import plan, recipe, spoil, statements, trainable_group, trajectory
from tests.rollout.scripted_engine import make_tokenizer

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
token_ids = st.integers(0, 2**31 - 1)
whole = st.integers(-(2**53), 2**53)
params = st.dictionaries(texts, st.none() | st.booleans() | whole | numbers | texts | st.lists(whole, max_size=2))


counts = st.integers(0, 2**31)
samplings = st.builds(
    Sampling,
    temperature=numbers,
    top_k=counts,
    top_p=numbers,
    min_tokens=counts,
    max_tokens=counts,
    seed=st.integers(0, 2**63 - 1),
)


media = st.builds(
    Media,
    content_hash=texts,
    offset=counts,
    num_placeholders=counts,
    grid=st.tuples(counts, counts, counts),
    resized=st.tuples(counts, counts),
    processor=texts,
)


@st.composite
def calls(draw) -> Call:
    response = draw(st.lists(token_ids, max_size=4))
    count = len(response) if draw(st.booleans()) else 0  # nobody sampled a demonstrated one
    return Call(
        key=draw(texts),
        policy=draw(texts),
        train_prompt_ids=draw(st.lists(token_ids, max_size=2)),
        borrowed=draw(counts),
        media=draw(st.lists(media, max_size=2)),
        prompt_ids=draw(st.lists(token_ids, max_size=4)),
        response=TokenColumns(
            token_ids=response,
            logprobs=draw(st.lists(numbers, min_size=count, max_size=count)),
            versions=draw(st.lists(st.integers(0, 2**40), min_size=count, max_size=count)),
            entropies=draw(st.just([]) | st.lists(numbers, min_size=count, max_size=count)),
            cache_versions=draw(st.just([]) | st.lists(st.integers(0, 9), min_size=count, max_size=count)),
            top_ids=draw(st.lists(st.lists(token_ids, max_size=2), min_size=count, max_size=count)),
            top_logprobs=draw(st.lists(st.lists(numbers, max_size=2), min_size=count, max_size=count)),
        ),
        sampling=draw(samplings),
        finish_reason=draw(st.sampled_from(FinishReason)),
    )


pictures = st.builds(Picture, content_hash=texts, data=st.binary(max_size=4))
messages = st.builds(Message, role=texts, content=texts, name=texts)
tools = st.builds(Tool, function=st.builds(Function, name=texts, description=texts, parameters=params))
points = st.tuples(numbers, numbers)
screens = st.just(Screen()) | st.builds(Resized, width=counts, height=counts) | st.builds(Unit, parts=counts)
places = st.builds(Point, numbers, numbers, screens) | st.builds(Element, ref=texts, label=texts)
actions = (
    st.builds(Pointer, gesture=st.sampled_from(["click", "drag"]), places=st.lists(places, max_size=2), scrolled=points)
    | st.builds(Keyboard, text=texts, keys=st.lists(texts, max_size=2), place=st.none() | places)
    | st.builds(ToolCall, name=texts, arguments=params, id=texts)
    | st.builds(Text, text=texts)
)
taken = st.builds(
    TakenAction,
    action=st.none() | actions,
    canonical=texts,
    outcome=st.sampled_from(Outcome),
    error=texts,
    points=st.lists(points, max_size=2),
)
observations = st.builds(
    Observation,
    goal=texts,
    text=texts,
    guidance=texts,
    error=texts,
    pictures=st.lists(pictures, max_size=2),
    messages=st.lists(messages, max_size=2),
    tools=st.lists(tools, max_size=2),
    prepared=st.lists(taken, max_size=2),
)
turns = st.builds(
    Turn,
    observation=observations,
    call_index=st.integers(0, 9),
    response=texts,
    actions=st.lists(taken, max_size=2),
    rewards=st.dictionaries(texts, numbers, max_size=2),
)
tasks = st.builds(Task, env=texts, family=texts, seed=st.integers(-(2**63), 2**63 - 1), params=params)
trajectories = st.builds(
    Trajectory,
    task=tasks,
    status=st.sampled_from(Status),
    calls=st.lists(calls(), max_size=3),
    turns=st.lists(turns, max_size=3),
    final_observation=st.none() | observations,
    rewards=st.dictionaries(texts, st.floats(-1e300, 1e300), max_size=3),
    success=st.booleans(),
    error=texts,
    wall_seconds=numbers,
    policy=texts,
    role=texts,
    part=texts,
    parent=st.none() | st.builds(Fork, rollout_id=counts, part=texts, call_index=counts),
)
provenances = st.builds(
    Provenance,
    run=texts,
    purpose=st.sampled_from(Purpose),
    rollout_id=st.integers(0, 2**62),
    group_id=st.integers(0, 2**62),
    attempt=st.integers(1, 9),
    created_at=numbers,
)
hashes = st.text("0123456789abcdef", min_size=16, max_size=16)
fingerprints = st.none() | st.builds(
    Fingerprint, tokenizer_hash=hashes, chat_template_hash=hashes, observation_hash=hashes
)
FORMATS = [(JsonlWriter, read_jsonl, "jsonl"), (ParquetWriter, read_parquet, "parquet")]


@pytest.mark.slow
@pytest.mark.parametrize(("writer", "read", "suffix"), FORMATS)
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_round_trip(writer, read, suffix, data):
    """Bit for bit: compared as bytes, which tell 0.0 from -0.0."""
    kept = data.draw(st.lists(st.tuples(trajectories, provenances, fingerprints), max_size=3))
    records = [TrajectoryRecord.of(*one) for one in kept]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file.{suffix}"
        with path.open("wb") as file:
            out = writer(file, recipe())
            for record in records:
                out.write(record)
            out.finish()
        back = list(read(path))
    assert [number for number, _ in back] == list(range(1, len(kept) + 1))
    for (_, record), (original, provenance, mark) in zip(back, kept, strict=True):
        assert bits(record.trajectory) == bits(original)
        assert (record.provenance, record.fingerprint, record.reward) == (provenance, mark, original.reward)


def test_chats_do_not_contain_the_guidance_of_a_guided_rollout():
    turn = trajectory(Task(env="bandit", family="left", seed=0)).turns[0]
    seen = replace(turn, observation=replace(turn.observation, goal="Press ok.", guidance="the second one"))
    guided = replace(trajectory(Task(env="bandit", family="left", seed=0)), turns=[seen])
    origin = Provenance(run="r", purpose=Purpose.TRAIN, rollout_id=1, group_id=1, attempt=1, created_at=0.0)
    file = io.BytesIO()
    ChatWriter(file, recipe()).write(TrajectoryRecord.of(guided, origin, None))
    text = file.getvalue().decode()
    assert "Press ok." in text and "the second one" not in text


@pytest.mark.parametrize(("loop", "numbers"), [("append", [0]), ("latest", [0, 1])])
def test_an_empty_response_is_not_learned_from_a_chat(loop, numbers, tmp_path):
    """A policy may end its turn at once, and the rest of the rollout be a success."""
    first, last = trajectory(Task(env="bandit", family="left", seed=0), turns=2).turns
    turns = [first, replace(first, response=""), last]
    origin = Provenance(run="r", purpose=Purpose.TRAIN, rollout_id=1, group_id=1, attempt=1, created_at=0.0)
    whole = replace(trajectory(Task(env="bandit", family="left", seed=0)), turns=turns)
    with (tmp_path / "x.jsonl").open("wb") as file:
        ChatWriter(file, recipe(rollout={"loop": loop})).write(TrajectoryRecord.of(whole, origin, None))
    chats = [decode_chat(line, ChatLine) for line in (tmp_path / "x.jsonl").read_bytes().splitlines()]
    assert [chat.turn for chat in chats] == numbers
    assert [chat.unlearned for chat in chats] == ([[1]] if loop == "append" else [[], []])
    ((_, _, demonstrated),) = read_chat_trajectories(tmp_path / "x.jsonl", "bandit", Renderer(make_tokenizer()))
    assert [turn.response for turn in demonstrated.turns] == [first.response, last.response]


def bits(value) -> bytes:
    return msgspec.msgpack.encode(value, order="deterministic")


FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize(("read", "name"), [(read_jsonl, "trajectory_1.jsonl"), (read_parquet, "trajectory_1.parquet")])
def test_a_file_of_the_former_format_is_read(read, name):
    """As Quartet wrote it before schema 6."""
    ((number, record),) = read(FIXTURES / name)
    first, second = record.trajectory.calls
    assert (number, record.reward, record.provenance.rollout_id) == (1, 1.0, 7)
    assert record.trajectory.task == Task(env="bandit", family="left", seed=3, params={"turns": 2})
    assert (first.prompt_ids, first.response_ids) == ([7, 8], [1, 2, 3])
    assert first.response == replace(second.response, entropies=[0.5, 0.25, 0.125])
    assert (second.response.logprobs, second.response.versions) == ([-0.01, -1.0, -5.0], [0, 1, 1])
    (clicked,), (covered,) = (turn.actions for turn in record.trajectory.turns)
    assert (clicked.canonical, clicked.outcome, clicked.points) == ("click left [1]", Outcome.DONE, [(2.0, 1.0)])
    assert (covered.canonical, covered.outcome, covered.error) == ("click (3,2)", Outcome.REFUSED, "covered [1]")
    assert covered.action == Pointer(gesture="click", places=[Point(3, 2)])
    found = [turn.observation.pictures for turn in record.trajectory.turns]
    assert len(found) == 2 and all(picture.data.startswith(b"\x89PNG") for (picture,) in found)


@pytest.mark.slow
def test_more_rows_than_one_row_group(tmp_path, ledger):
    for _ in range(150):
        trainable_group(ledger)
    export(ledger, recipe(), "parquet", tmp_path / "x.parquet", Selection())
    back = [record.provenance.rollout_id for _, record in read_parquet(tmp_path / "x.parquet")]
    assert back == list(range(1, 301))


def test_a_number_that_json_does_not_know_is_refused():
    odd = replace(trajectory(plan().task), rewards={"task": math.inf})
    where = Provenance(run="r", purpose=Purpose.TRAIN, rollout_id=7, group_id=1, attempt=1, created_at=0.0)
    with pytest.raises(LedgerError, match="rollout 7"):
        JsonlWriter(io.BytesIO(), recipe()).write(TrajectoryRecord.of(odd, where, None))


def test_the_selection(ledger, tmp_path):
    trainable_group(ledger)
    trainable_group(ledger, family="right")
    group = ledger.groups.admit(plan("left", rollouts=1, purpose=Purpose.EVAL))
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    ledger.trajectories.append(lease, trajectory(lease.task, reward=1.0), 3)
    ledger.groups.admit(plan(rollouts=1))
    (retried,) = ledger.rollouts.claim("w", 1, 60)
    ledger.trajectories.append(retried, trajectory(retried.task, status=Status.ERROR_ENV), 3)

    def taken(limit: int | None = None, **selection) -> list[int]:
        export(ledger, recipe(), "jsonl", tmp_path / "x.jsonl", Selection(**selection), limit)
        return [record.provenance.rollout_id for _, record in read_jsonl(tmp_path / "x.jsonl")]

    assert taken() == [1, 2, 3, 4]
    assert taken(families=["right"]) == [3, 4]
    assert taken(successes_only=True) == [2, 4]
    assert taken(purpose=Purpose.EVAL) == [lease.rollout_id]
    assert taken(limit=3) == [1, 2, 3]
    assert group == lease.group_id


def test_provenance_and_no_leftovers(ledger, tmp_path):
    group_id = trainable_group(ledger, versions=(3, 3, 4))
    summary = export(ledger, recipe(), "jsonl", tmp_path / "new" / "x.jsonl", Selection())
    assert (summary.trajectories, summary.turns, summary.response_tokens, summary.damaged) == (2, 2, 6, 0)
    line = json.loads((tmp_path / "new" / "x.jsonl").read_text().splitlines()[1])
    assert line["provenance"] == {
        "run": "run",
        "purpose": "train",
        "rollout_id": 2,
        "group_id": group_id,
        "attempt": 1,
        "created_at": 1000.0,
    }
    assert line["reward"] == 1.0 and line["trajectory"]["task"]["family"] == "left"
    (call,) = line["trajectory"]["calls"]
    assert (call["prompt_ids"], call["response"]["token_ids"]) == ([7, 8, 9], [0, 1, 2])
    assert call["response"]["versions"] == [3, 3, 4]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["x.jsonl"]


def test_screenshots_only_when_asked_for(ledger, tmp_path):
    trainable_group(ledger, screenshot=b"picture")

    def pictures(kind, read, **selection):
        export(ledger, recipe(), kind, tmp_path / "x", Selection(**selection))
        found = [turn.observation.pictures for _, record in read(tmp_path / "x") for turn in record.trajectory.turns]
        assert all(picture.content_hash == hashlib.sha256(b"picture").hexdigest() for (picture,) in found)
        return [picture.data for (picture,) in found]

    for kind, read in (("jsonl", read_jsonl), ("parquet", read_parquet)):
        assert pictures(kind, read) == [b"", b""]
        assert pictures(kind, read, screenshots=True) == [b"picture", b"picture"]
    for group_id in ledger.groups.closable(0):
        ledger.groups.close(group_id)
    batch = ledger.batches.claim("t", 1, 9, "mask", 60)
    assert batch is not None
    ledger.batches.commit(batch, "p1", {})
    assert ledger.disk.drop_pictures(9, checkpoint_step=1)[0] == 2
    assert pictures("jsonl", read_jsonl, screenshots=True) == [b"", b""]


def test_damaged_ones_are_left_out_and_counted(ledger, tmp_path):
    trainable_group(ledger)
    trainable_group(ledger, versions=(1,))
    spoil(ledger, 1)
    for selection in (Selection(), Selection(screenshots=True)):
        summary = export(ledger, recipe(), "jsonl", tmp_path / "x.jsonl", selection)
        assert (summary.trajectories, summary.damaged) == (3, 1)


def test_a_run_at_work_does_not_make_the_export_endless(ledger):
    trainable_group(ledger)
    found = 0
    for _ in stored_trajectories(ledger, Selection()):
        trainable_group(ledger)
        found += 1
    assert found == 2


def test_pages_follow_the_key(ledger):
    """No page sorts or scans what came before it, or a run of a million rollouts would never be read out."""
    trainable_group(ledger)
    with statements() as asked:
        list(stored_trajectories(ledger, Selection(families=["left"], successes_only=True)))
    (page,) = [sql for sql, _ in asked if "LIMIT" in sql]
    assert "purpose =" not in page and "family =" not in page


def test_chats_are_what_the_loop_showed(ledger, tmp_path):
    trainable_group(ledger, turns=2)
    for loop, expected in {
        "latest": [
            ["Pull.\nbutton left [1]", "click left [1]"],
            ["Pull.\nbutton left [1]\ndid click left [1]", "click left [1]"],
        ],
        "append": [["Pull.\nbutton left [1]", "click left [1]"] * 2],
    }.items():
        summary = export(
            ledger, recipe(rollout={"loop": loop}), "chat", tmp_path / "x.jsonl", Selection(successes_only=True)
        )
        assert summary.trajectories == 1
        lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
        assert [[message["content"] for message in line["messages"]] for line in lines] == expected
        assert [line["turn"] for line in lines] == list(range(len(expected)))
        roles = {tuple(message["role"] for message in line["messages"]) for line in lines}
        assert roles == {("user", "assistant") * (len(expected[0]) // 2)}
        assert lines[0]["params"] == {"turns": 1} and lines[0]["success"] is True
        assert {(line["policy"], line["role"]) for line in lines} == {("main", "agent")}


@pytest.mark.parametrize("loop", ["append", "latest", "alternate"])
def test_a_trajectory_without_turns_leaves_no_chat(ledger, tmp_path, loop):
    ledger.groups.admit(plan(rollouts=1))
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    ledger.trajectories.append(
        lease, replace(trajectory(lease.task, status=Status.TRUNCATED_TOKENS), calls=[], turns=[]), 1
    )
    several = {"policies": {"a": {}, "b": {}}} if loop == "alternate" else {}
    export(ledger, recipe(rollout={"loop": loop}, **several), "chat", tmp_path / "x.jsonl", Selection())
    assert (tmp_path / "x.jsonl").read_bytes() == b""


def test_the_page_shows_what_is_read(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "exchange.md").read_text()
    trajectory_json, chat_json = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(json.loads(trajectory_json)))
    ((_, record),) = read_jsonl(path)
    (call,) = record.trajectory.calls
    assert len(call.response_ids) == len(call.response.logprobs) == 2
    assert set(json.loads(trajectory_json)) == {"format", *TrajectoryRecord.__struct_fields__}
    assert set(json.loads(chat_json)) == set(ChatLine.__struct_fields__)
    msgspec.json.decode(chat_json, type=ChatLine, strict=True)


def test_line_without_a_trajectory_is_named(tmp_path):
    lines, table = tmp_path / "x.jsonl", tmp_path / "x.parquet"
    lines.write_text('\n{"format": "quartet-trajectory-1"}\n')
    with pytest.raises(ConfigError, match=r"x\.jsonl:2 is not a trajectory: "):
        list(read_jsonl(lines))
    lines.write_text('{"format": "quartet-trajectory-3"}\n')
    with pytest.raises(ConfigError, match="quartet-trajectory-3"):
        list(read_jsonl(lines))
    table.write_bytes(b"no table")
    with pytest.raises(ConfigError, match=r"x\.parquet"):
        list(read_parquet(table))
    with pytest.raises(ConfigError, match="Did you mean 'jsonl'"):
        export(None, recipe(), "json", table, Selection())  # type: ignore[arg-type]


def test_a_mask_of_the_former_format_that_is_none(tmp_path):
    line = json.loads((FIXTURES / "trajectory_1.jsonl").read_text())
    for mask in ([0, 0, 1, 1], [0, 1, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 2]):
        line["calls"][0]["response_mask"] = mask
        (tmp_path / "x.jsonl").write_text(json.dumps(line))
        with pytest.raises(ConfigError, match=r"x\.jsonl:1: .*(response_mask|differ in length)"):
            list(read_jsonl(tmp_path / "x.jsonl"))
