"""Files that nobody would write: read, or refused in words."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bandit import bandit_recipe
from quartet.actions.grammar import ActionError, parse_action
from quartet.actions.written import format_action
from quartet.errors import QuartetError
from quartet.recipe.file import load_recipe, to_toml
from quartet.report.default_window import default_window
from quartet.report.follow import Follower
from quartet.telemetry.record import Recorder
from quartet.telemetry.records import read_records
from quartet.telemetry.series import read_series
from quartet.telemetry.slices import run_extent
from quartet.telemetry.spans import Span, read_spans
from quartet.web.timeline import window
from tests.fuzz.mutations import mutated, spliced

pytestmark = pytest.mark.campaign
MANY = settings(max_examples=150)
BEGAN = 1_790_000_000.0
WORDS = [
    *("click", "type", "select", "key", "press", "scroll", "drag", "done", "up", "down", "to", "->"),
    *("[3]", "[", "]", "(1,2)", "(", ")", ",", '"', "“", "'", ".", ":", "`", "*", "\\", "\\n"),
    *("next", "Enter", "Control+", "12345678", "²", "٣", "\x1b[2J", "\u202e", "\ud83d", "\x00", "é", "a" * 2_000),
    *(" ", "  ", "\t", "\r", "\n", "\u00a0", "\u2028"),
]


@settings(max_examples=1_500)
@given(st.lists(st.sampled_from(WORDS), max_size=14).map("".join))
def test_any_response_is_an_action_or_an_action_error(text):
    try:
        action = parse_action(text)
    except ActionError as error:
        assert len(str(error)) < 60
    else:
        assert parse_action(format_action(action)) == action


@pytest.fixture(scope="module")
def recipe_text() -> str:
    return to_toml(bandit_recipe(Path("policy")))


@MANY
@given(data=st.data())
def test_any_recipe_is_read_or_refused_in_words(data, recipe_text, tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    if data.draw(st.booleans()):
        file.write_bytes(data.draw(spliced(recipe_text.encode())))
    else:
        file.write_text(_toml(data.draw(mutated(tomllib.loads(recipe_text)))), errors="surrogatepass")
    try:
        recipe = load_recipe(file)
    except QuartetError as error:
        assert str(error)
    else:
        assert tomllib.loads(to_toml(recipe))["name"] == recipe.name


@pytest.fixture(scope="module")
def recorded_run(tmp_path_factory) -> Path:
    run_dir, now = tmp_path_factory.mktemp("recorded"), [BEGAN]
    with Recorder(run_dir, "trainer", clock=lambda: now[0]) as recorder:
        for step in range(3):
            now[0] += 30
            recorder.metric("train", step=step, loss=0.5)
            recorder.finished(Span(start=now[0] - 5, seconds=4, name="train_step", lane="a 1", fields={"x": 1}))
    return run_dir


@MANY
@given(data=st.data())
def test_any_records_are_read(data, recorded_run):
    originals = {path: path.read_bytes() for path in recorded_run.rglob("*.jsonl")}
    try:
        for path, content in originals.items():
            path.write_bytes(data.draw(_damaged(content)))
        _read_everything(recorded_run)
    finally:
        for path, content in originals.items():
            path.write_bytes(content)


@st.composite
def _damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes spliced, or values of some lines replaced."""
    if draw(st.booleans()):
        return draw(spliced(content))
    lines = [draw(mutated(json.loads(line))) for line in content.splitlines()]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _read_everything(run_dir: Path) -> None:
    run_extent(run_dir)
    default_window(run_dir, 60)
    assert read_spans(run_dir, BEGAN, BEGAN + 600) is not None
    list(read_records(run_dir, "train"))
    read_series(run_dir, ["train/loss"], axis="train_step")
    read_series(run_dir, ["train/loss"], start=BEGAN, end=BEGAN + 600, max_points=5)
    Follower(run_dir).read()
    json.dumps(window(run_dir, BEGAN, 600))


def _toml(value: object, inline: bool = False) -> str:
    """TOML of a mutated recipe, as far as TOML can say it."""
    if isinstance(value, dict) and not inline:
        return "\n".join(f"{json.dumps(key)} = {_toml(item, inline=True)}" for key, item in value.items())
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item, inline=True)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item, inline=True) for item in value) + "]"
    return json.dumps(value)
