"""OSWorld's adapter against a small guest server of our own that speaks its protocol and runs its commands."""

import io
import json
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from click.testing import CliRunner
from osworld_guest import TREE, GuestServer
from PIL import Image

from quartet import config
from quartet.actions.grammar import parse_action
from quartet.cli import cli
from quartet.env import family_categories, make_environment
from quartet.env.base import EnvPool
from quartet.env.desktop.elements import Elements
from quartet.env.osworld.guest import MAX_ANSWER_BYTES, Guest
from quartet.env.osworld.hands import GuestHands
from quartet.env.osworld.judging import obstacle
from quartet.env.osworld.session import OSWorldSession
from quartet.env.osworld.task import OSWorldTask
from quartet.env.osworld.tree import windows_and_nodes
from quartet.errors import ConfigError, EnvError
from quartet.policy.make_vision import make_vision_policy
from quartet.recipe.file import load_recipe
from quartet.registry import build
from quartet.runtime.check.training import check_training
from quartet.types import Done, Infeasible, Keyboard, Outcome, Pointer, StepResult, Task
from quartet.types.frame import Point, Screen, Unit

pytestmark = pytest.mark.slow

RULE = {"type": "rule", "rules": {"expected": "hello\n"}}
COUNT = "echo >> lines; n=$(wc -l < lines); echo n$n"
SAYS_HELLO = {"type": "vm_command_line", "command": "cat said", "shell": True}
TASKS: dict[str, dict[str, Any]] = {
    "say": {
        "config": [
            {"type": "launch", "parameters": {"command": ["gedit"]}},
            {"type": "execute", "parameters": {"command": "rm -f said", "shell": True}},
            {"type": "activate_window", "parameters": {"window_name": "gedit"}},
        ],
        "evaluator": {"func": "exact_match", "result": SAYS_HELLO, "expected": RULE},
    },
    "either": {
        "evaluator": {
            "func": ["exact_match", "check_include_exclude"],
            "conj": "or",
            "result": [SAYS_HELLO, {"type": "vm_command_line", "command": ["echo", "x", "y"]}],
            "expected": [RULE, {"type": "rule", "rules": {"include": ["x"], "exclude": ["z"]}}],
        }
    },
    "impossible": {"evaluator": {"func": "infeasible"}},
    "filled": {
        "config": [
            {"type": "launch", "parameters": {"command": ["xdotool", "{SCREEN_WIDTH_HALF}", "{SCREEN_HEIGHT_HALF}"]}},
            {
                "type": "execute",
                "parameters": {
                    "command": "echo {CLIENT_PASSWORD} {SCREEN_WIDTH}x{SCREEN_HEIGHT} > filled",
                    "shell": True,
                },
            },
        ],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_file", "path": "filled", "dest": "filled"},
            "expected": RULE,
            "postconfig": [{"type": "command", "parameters": {"command": ["touch", "{CLIENT_PASSWORD}"]}}],
        },
    },
    "until": {
        "config": [
            {
                "type": "execute",
                "parameters": {"command": f"{COUNT}; [ $n = 2 ]", "shell": True, "until": {"returncode": 0}},
            },
            {
                "type": "execute",
                "parameters": {"command": COUNT, "shell": True, "until": {"stdout": "n4", "stderr": "x"}},
            },
            {"type": "execute", "parameters": {"command": COUNT, "shell": True, "until": {}}},
        ],
        "evaluator": {"func": "infeasible"},
    },
    "slow": {
        "config": [{"type": "execute", "parameters": {"command": ["sleep", "0.6"]}}],
        "evaluator": {"func": "infeasible"},
    },
    "never": {
        "config": [{"type": "execute", "parameters": {"command": ["false"], "until": {"returncode": 0}}}],
        "evaluator": {"func": "infeasible"},
    },
    "slides": {"evaluator": {"func": "compare_pptx_files", "result": {"type": "vm_file", "path": "/x"}}},
    "unknown_verb": {"config": [{"type": "login"}], "evaluator": {"func": "infeasible"}},
    "unknown_verb_after": {"evaluator": {"func": "exact_match", "result": RULE, "postconfig": [{"type": "login"}]}},
    "with_options": {
        "evaluator": {
            "func": ["compare_text_file"],
            "result": [{"type": "vm_file", "path": "/x"}],
            "expected": [RULE],
            "options": [{"ignore_case": True}],
        }
    },
    "uneven": {"evaluator": {"func": ["exact_match", "exact_match"], "result": [RULE], "expected": [RULE]}},
}


@pytest_asyncio.fixture
async def guest(tmp_path: Path) -> AsyncIterator[GuestServer]:
    server = GuestServer(tmp_path)
    await server.start()
    yield server
    await server.stop()


def settings(folder: Path, *addresses: str, **changes: Any) -> config.Env:
    examples = folder / "examples" / "os"
    examples.mkdir(parents=True, exist_ok=True)
    for name, task in TASKS.items():
        (examples / f"{name}.json").write_text(json.dumps({"id": name, "instruction": f"Please {name}.", **task}))
    given = {"tasks": str(folder / "examples"), "addresses": [*addresses], "sessions": 1}
    waits = {"settle_seconds": 0.5, "launch_seconds": 0.1, "step_timeout_seconds": 100.0}
    return config.Env.model_validate({"name": "osworld", **given, **waits, **changes})


@pytest_asyncio.fixture
async def pool(guest: GuestServer, tmp_path: Path) -> AsyncIterator[EnvPool]:
    env = settings(tmp_path, guest.url)
    pool = make_environment(env).pool(env)
    yield pool
    await pool.close()


async def play(pool: EnvPool, family: str, *actions: str) -> StepResult:
    session = await pool.acquire()
    await session.reset(Task(env="osworld", family=family, seed=0))
    result = None
    for action in actions:
        result = await session.step(action)
    await pool.release(session, healthy=True)
    assert result is not None
    return result


def test_infeasible_tasks_are_a_category_of_their_own(tmp_path: Path) -> None:
    categories = {"feasible": {"say", "either", "filled"}, "infeasible": {"impossible", "never", "slow", "until"}}
    assert family_categories(settings(tmp_path)) == categories


async def test_a_task_is_set_up_observed_and_judged(guest: GuestServer, pool: EnvPool) -> None:
    session = await pool.acquire()
    first = await session.reset(Task(env="osworld", family="say", seed=0))
    released, *prepared = [path for path, _ in guest.requests]
    assert (released, prepared) == ("/execute", ["/setup/launch", "/execute", "/setup/activate_window"])
    assert first.goal == "Please say."
    assert first.text == ('window notes - gedit [1] active\nbutton Save [2]\ntextarea 1st [3] = "some (text)"')
    assert first.pictures[0].data.startswith(b"\x89PNG")
    assert not (await session.step("click Save [2]")).terminated
    (guest.folder / "said").write_text("hello\n")
    result = await session.step("done")
    assert (result.reward, result.terminated, result.info["infeasible"]) == (1.0, True, False)
    await pool.release(session, healthy=True)


@pytest.mark.parametrize(
    ("family", "action", "reward"),
    [
        ("say", "done", 0),
        ("say", "infeasible", 0),
        ("either", "done", 1),
        ("impossible", "infeasible", 1),
        ("impossible", "done", 0),
    ],
)
async def test_a_declaration_ends_the_episode(pool: EnvPool, family: str, action: str, reward: float) -> None:
    result = await play(pool, family, action)
    assert (result.reward, result.terminated) == (reward, True)


async def test_actions_reach_the_guest_as_data(guest: GuestServer, pool: EnvPool) -> None:
    text = '\'); import os; os.abort() # "\\\\>"\n'
    session = await pool.acquire()
    assert isinstance(session, OSWorldSession)
    await session.reset(Task(env="osworld", family="say", seed=0))
    guest.forget_calls()
    await session.act(
        [
            Pointer(gesture="double_click", places=[Point(500, 500, Unit(1000))]),
            Keyboard(text=text),
            Keyboard(text="a<b<"),
            Keyboard(keys=["Control+Shift+s", "ArrowLeft", "Control+<"]),
            Pointer(gesture="drag", places=[Point(1, 2), Point(30, 40)]),
            Pointer(gesture="scroll", scrolled=(0, 3)),
            Pointer(gesture="scroll", scrolled=(-1e9, 999_999)),
            Pointer(gesture="scroll", scrolled=(0.05, -0.05)),
        ]
    )
    assert guest.calls() == [
        ["moveTo", 320.0, 200.0, {}],
        ["click", {"button": "left", "clicks": 2, "interval": 0.05}],
        ["write", text, {"interval": 0.01}],
        *(["write", "a", {"interval": 0.01}], ["hotkey", "shift", ",", {}]),
        *(["write", "b", {"interval": 0.01}], ["hotkey", "shift", ",", {}]),
        ["hotkey", "ctrl", "shift", "s", {}],
        ["hotkey", "left", {}],
        ["hotkey", "ctrl", "shift", ",", {}],
        ["moveTo", 1, 2, {}],
        ["mouseDown", {}],
        ["moveTo", 30, 40, {"duration": 0.3}],
        ["mouseUp", {}],
        ["scroll", -3, {}],
        ["hscroll", 0, {}],
        ["scroll", -50, {}],
        ["hscroll", -50, {}],
        ["scroll", 1, {}],
        ["hscroll", 1, {}],
    ]
    await pool.release(session, healthy=True)


async def test_an_empty_text_empties_a_field(guest: GuestServer, pool: EnvPool) -> None:
    result = await play(pool, "either", 'type 1st [3] ""')
    assert result.actions[0].outcome == Outcome.DONE
    assert [call[1:-1] for call in guest.calls() if call[0] == "hotkey"] == [["ctrl", "a"], ["backspace"]]


async def test_a_held_button_is_released_at_the_end_of_its_turn(guest: GuestServer, pool: EnvPool) -> None:
    session = await pool.acquire()
    assert isinstance(session, OSWorldSession)
    await session.reset(Task(env="osworld", family="either", seed=0))
    guest.forget_calls()
    await session.act([Pointer(gesture="down"), Pointer(gesture="move", places=[Point(1, 2)])])
    await session.act([Pointer(gesture="down"), Pointer(gesture="up")])
    assert [call[0] for call in guest.calls()] == ["mouseDown", "moveTo", "mouseUp", "mouseDown", "mouseUp"]
    await pool.release(session, healthy=True)


async def test_held_keys_are_released_at_the_end_of_their_turn(guest: GuestServer, pool: EnvPool) -> None:
    session = await pool.acquire()
    assert isinstance(session, OSWorldSession)
    await session.reset(Task(env="osworld", family="either", seed=0))
    guest.forget_calls()
    steps = [
        ("KEY_DOWN", {"key": "ctrl"}),
        ("KEY_DOWN", {"key": "shift"}),
        ("MOUSE_DOWN", {}),
        ("KEY_UP", {"key": "shift"}),
    ]
    said = json.dumps([{"action_type": kind, "parameters": parameters} for kind, parameters in steps])
    result = await session.act(build(config.ActionFormat(name="computer_13")).parse(said, Screen()))
    assert [one.outcome for one in result.actions] == [Outcome.DONE] * 4
    downs = [["keyDown", "ctrl", {}], ["keyDown", "shift", {}], ["mouseDown", {}]]
    assert guest.calls() == [*downs, ["keyUp", "shift", {}], ["keyUp", "ctrl", {}], ["mouseUp", {}]]
    await session.act([Keyboard(keys=["Alt", "<"], motion="down")])
    assert not held(guest.calls())
    await pool.release(session, healthy=True)


async def test_what_another_session_has_left_down_is_released_at_the_reset(guest: GuestServer, pool: EnvPool) -> None:
    client = Guest(guest.url, 30)
    killed = GuestHands(client, 640, 400)  # its process ends before it releases anything
    for keys in (["Control+Shift"], ["a"], ["F5"], ["<"]):
        await killed.perform(Keyboard(keys=keys, motion="down"))
    await killed.perform(Pointer(gesture="down"))
    await client.close()
    assert held(guest.calls()) == {"ctrl", "shift", "a", "f5", ",", "left"}
    session = await pool.acquire()
    for _ in range(2):
        await session.reset(Task(env="osworld", family="either", seed=0))
        assert not held(guest.calls())
    await pool.release(session, healthy=True)


def held(calls: list[Any]) -> set[str]:
    """Keys and buttons that are down after these calls."""
    down = set[str]()
    for name, *positional, named in calls:
        each = {positional[0] if positional else named.get("button", "left")}
        if name in ("keyDown", "mouseDown"):
            down |= each
        elif name in ("keyUp", "mouseUp"):
            down -= each
    return down


async def test_answers_are_read_to_their_end(guest: GuestServer) -> None:
    guest.picture = random.Random(0).randbytes(2 << 20)
    guest.tree = TREE.replace("some [text]", "a" * (1 << 19))
    client = Guest(guest.url, 30)
    assert await client.screenshot() == guest.picture
    assert await client.accessibility() == guest.tree
    guest.picture = bytes(MAX_ANSWER_BYTES + 1)
    with pytest.raises(EnvError, match="more than 64 MiB"):
        await client.screenshot()
    await client.close()


async def test_only_a_lost_read_is_repeated(guest: GuestServer) -> None:
    client = Guest(guest.url, 30)
    guest.lost_answers.append("/screenshot")
    await client.screenshot()
    assert len(guest.reads) == 2
    guest.failures.append("/screenshot")
    with pytest.raises(EnvError, match="answered 500"):
        await client.screenshot()
    assert len(guest.reads) == 3
    await client.close()


def test_a_tree_that_is_no_xml_is_an_error() -> None:
    assert windows_and_nodes("") == ([], [])
    with pytest.raises(EnvError, match="not XML"):
        windows_and_nodes(TREE[:-10])


def test_applications_of_the_same_name_have_elements_of_their_own() -> None:
    start, app, end = TREE.partition("<application")[0], TREE[TREE.index("<application") : -16], "</desktop-frame>"
    elements = Elements(640, 400)
    two = elements.listing(*windows_and_nodes(start + app + app.replace("Save", "Delete") + end)).items
    buttons = {item.label: item.ref for item in two if item.kind == "button"}
    assert len(buttons) == 2 and len({item.ref for item in two}) == len(two) == 6
    hidden = app.replace('<frame name="notes - gedit" st:showing="true"', '<frame name="notes - gedit"')
    one = elements.listing(*windows_and_nodes(start + hidden + app.replace("Save", "Delete") + end)).items
    assert [item.ref for item in one] == [item.ref for item in two if item.target in [other.target for other in one]]


async def test_an_impossible_action_is_an_outcome(pool: EnvPool) -> None:
    for action, error in (
        ("click Gone [9]", "no element [9]"),
        ("click (640,0)", "outside the page (640,0)"),
        (f'type here "{"a" * 1001}"', "text longer than 1000 characters"),
        ('type here "漢"', "text with a character that is on no key"),
        ('call open {"url": "x"}', "not possible in this guest"),
    ):
        result = await play(pool, "say", action)
        assert (result.observation.error, result.actions[0].outcome) == (error, Outcome.REFUSED)


async def test_every_action_that_the_grammar_offers_is_possible(pool: EnvPool, tmp_path: Path) -> None:
    offered = re.findall("`(.+?)`", make_environment(settings(tmp_path)).grammar)
    *before, end, after = [parse_action(re.sub(r"\[\d+\]", "[2]", action)) for action in offered]
    assert len(before) >= 6 and (end, after) == (Done(), Infeasible())
    session = await pool.acquire()
    assert isinstance(session, OSWorldSession)
    await session.reset(Task(env="osworld", family="either", seed=0))
    result = await session.act([*before, end, after])
    assert [one.outcome for one in result.actions] == [Outcome.DONE] * (len(before) + 1) + [Outcome.ENDED]
    await pool.release(session, healthy=True)


async def test_an_action_whose_answer_is_lost_is_not_repeated(guest: GuestServer, pool: EnvPool) -> None:
    session = await pool.acquire()
    guest.lost_answers.append("/screenshot")
    await session.reset(Task(env="osworld", family="either", seed=0))
    guest.forget_calls()
    guest.lost_answers.append("/execute")
    with pytest.raises(EnvError, match="/execute"):
        await session.step("click Save [2]")
    assert [call[0] for call in guest.calls()] == ["moveTo", "click"]
    await pool.release(session, healthy=False)


async def test_a_guest_that_starts_is_awaited(guest: GuestServer, pool: EnvPool) -> None:
    session = await pool.acquire()
    guest.failures += ["/screen_size"] * 2
    await session.reset(Task(env="osworld", family="either", seed=0))
    assert guest.reads.count("/screen_size") == 3
    await pool.release(session, healthy=True)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["sh", "-c", "sleep 1000 & echo $! > pid; wait"], r"(?s)reset .* longer than 1 s.*env\.reset_timeout_seconds"),
        (["no-such-program"], r"(?s)cannot run no-such-program.*env\.revert_command"),
        (["false"], r"(?s)exit code 1.*env\.revert_command"),
        ([], r"reset of .* longer than 1 s: .*Connect"),
    ],
)
async def test_a_guest_that_cannot_be_reverted_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    env = settings(tmp_path, "http://127.0.0.1:9", revert_command=command, step_timeout_seconds=1.0)
    session = await make_environment(env).pool(env).acquire()
    with pytest.raises(EnvError, match=error):
        await session.reset(Task(env="osworld", family="either", seed=0))
    if (tmp_path / "pid").exists():
        wait_for_end(int((tmp_path / "pid").read_text()))
    await session.close()


def wait_for_end(pid: int) -> None:
    with suppress(OSError):
        while ") Z" not in Path(f"/proc/{pid}/stat").read_text():
            time.sleep(0.01)


async def test_a_guest_is_reverted_before_each_episode(guest: GuestServer, tmp_path: Path) -> None:
    log = tmp_path / "reverted"
    command = ["sh", "-c", f"echo {{address}} >> {log}"]
    env = settings(tmp_path, guest.url, revert_command=command)
    pool = make_environment(env).pool(env)
    await play(pool, "say", "done")
    await play(pool, "say", "done")
    assert log.read_text() == f"{guest.url}\n" * 2


def test_tasks_that_need_more_are_left_out_and_each_session_needs_a_guest(tmp_path: Path) -> None:
    env = settings(tmp_path, "http://127.0.0.1:9", sessions=2)
    assert make_environment(env).families() == ["either", "filled", "impossible", "never", "say", "slow", "until"]
    with pytest.raises(ConfigError, match=r"env\.addresses has 1"):
        make_environment(env).pool(env)


def checked(**evaluator: Any) -> dict[str, Any]:
    return {"evaluator": {"func": "exact_match", "result": SAYS_HELLO, "expected": RULE, **evaluator}}


def prepared(verb: str, **parameters: Any) -> dict[str, Any]:
    return {"config": [{"type": verb, "parameters": parameters}], "evaluator": {"func": "infeasible"}}


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (prepared("login"), "unknown setup verb of OSWorld 'login'"),
        (prepared("launch", command=["x"], wait=1), "'launch': Object contains unknown field `wait`"),
        (prepared("launch", shell=True), "'launch': Object missing required field `command`"),
        (prepared("execute", command=["x"], stdout="a.txt"), "'execute': Object contains unknown field `stdout`"),
        (prepared("execute", command=["x"], until={"output": "x"}), "unknown field `output` - at `$.until`"),
        (prepared("sleep", seconds="long"), "'sleep': Expected `float`"),
        (checked(expected={"type": "rule", "rules": {"expect": "x"}}), "rules of the metric 'exact_match'"),
        (checked(expected={"type": "rule"}), "the getter 'rule': Object missing required field `rules`"),
        (checked(expected=SAYS_HELLO), "rules of the metric 'exact_match'"),
        (checked(expected=None), "a getter without a type: None"),
        (checked(result={"type": "vm_command_line"}), "missing required field `command`"),
        (checked(func="check_include_exclude"), "rules of the metric 'check_include_exclude'"),
        (checked(options={"x": 1}), "the evaluator has options"),
        (checked(func=[], result=[], expected=[]), "the evaluator has no metric"),
        (checked(postconfig=[{"type": "login"}]), "unknown setup verb"),
        (checked(), ""),
    ],
)
def test_a_task_that_cannot_be_set_up_or_judged_has_a_reason(task: dict[str, Any], reason: str) -> None:
    found = obstacle(msgspec.convert({"id": "x", "instruction": "x", **task}, OSWorldTask))
    assert reason in found and bool(reason) == bool(found)


async def test_placeholders_are_filled_with_the_values_of_the_guest(
    guest: GuestServer, pool: EnvPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUARTET_GUEST_PASSWORD", "secret")
    await play(pool, "filled", "done")
    (launched,) = [body for path, body in guest.requests if path == "/setup/launch"]
    assert launched["command"] == ["xdotool", "320", "200"]
    assert (guest.folder / "filled").read_text() == "secret 640x400\n"
    assert (guest.folder / "secret").exists()


async def test_a_command_is_repeated_until_its_condition_holds(guest: GuestServer, pool: EnvPool) -> None:
    await play(pool, "until", "done")
    assert (guest.folder / "lines").read_text() == "\n" * 5


async def test_a_reset_and_a_step_have_limits_of_their_own(guest: GuestServer, tmp_path: Path) -> None:
    env = settings(tmp_path, guest.url, step_timeout_seconds=0.5, reset_timeout_seconds=100.0)
    session = await make_environment(env).pool(env).acquire()
    await session.reset(Task(env="osworld", family="slow", seed=0))
    with pytest.raises(EnvError, match=r"(?s)longer than 0\.5 s.*env\.step_timeout_seconds"):
        await session.step("wait 1")
    await session.close()


async def test_a_condition_that_never_holds_ends_the_reset(guest: GuestServer, tmp_path: Path) -> None:
    env = settings(tmp_path, guest.url, step_timeout_seconds=2.0)
    session = await make_environment(env).pool(env).acquire()
    with pytest.raises(EnvError, match="longer than 2 s"):
        await session.reset(Task(env="osworld", family="never", seed=0))
    await session.close()


def blue(size: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (size, size), "blue").save(file, "PNG")
    return file.getvalue()


OPENED = TREE.replace("notes - gedit", "opened - gedit")


@pytest.mark.parametrize("trees", [(TREE, OPENED), ("", "")])
async def test_the_first_observation_shows_the_program_that_the_setup_has_launched(
    guest: GuestServer, tmp_path: Path, trees: tuple[str, str]
) -> None:
    """The window appears some reads after the launch was answered. Without a tree the picture tells that it has."""
    before, after = trees
    guest.tree, guest.picture = before, blue(1)
    guest.after_launch = [(before, blue(1))] * 4 + [(after, blue(2))]
    env = settings(tmp_path, guest.url, launch_seconds=30.0)
    pool = make_environment(env).pool(env)
    session = await pool.acquire()
    first = await session.reset(Task(env="osworld", family="say", seed=0))
    assert first.pictures[0].data == blue(2)
    assert ("window opened - gedit" in first.text) == bool(after)
    await pool.release(session, healthy=True)


async def test_an_observation_waits_until_the_list_of_windows_stays(guest: GuestServer, tmp_path: Path) -> None:
    """A program may draw its window before the accessibility tree lists it."""
    env = settings(tmp_path, guest.url, settle_seconds=30.0)
    guest.after_launch = [(OPENED, b""), (OPENED, b""), (TREE, b"")]
    pool = make_environment(env).pool(env)
    session = await pool.acquire()
    first = await session.reset(Task(env="osworld", family="say", seed=0))
    assert "window notes - gedit" in first.text
    await pool.release(session, healthy=True)


def test_init_writes_a_recipe_that_trains_on_the_examples(tmp_path: Path) -> None:
    arguments = ["init", str(tmp_path / "new"), "--env", "osworld", "--model", "miniwob-start"]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    env = load_recipe(tmp_path / "new").env
    assert make_environment(env).families() == ["make_file", "open_missing"]


@pytest.mark.parametrize(("kind", "actions"), [("qwen3_vl", "qwen3_vl"), ("qwen2_5_vl", "ui_tars")])
def test_init_shows_the_screens_to_a_model_that_reads_pictures(tmp_path: Path, kind: str, actions: str) -> None:
    make_vision_policy(["click"] * 2, tmp_path / "model", kind=kind)
    arguments = ["init", str(tmp_path / "new"), "--env", "osworld", "--model", str(tmp_path / "model")]
    assert CliRunner().invoke(cli, arguments, catch_exceptions=False).exit_code == 0
    recipe = load_recipe(tmp_path / "new")
    assert (recipe.rollout.loop.name, recipe.rollout.actions.name) == ("screens", actions)
    assert recipe.rollout.history.settings == {"min": 3, "every": 3}
    check_training(recipe)
