"""Desktops on a real X server with real programs: what is seen, what actions do, and what is left behind."""

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from PIL import Image, ImageChops
from Xlib import Xatom

from quartet import config
from quartet.actions.keyboard import KEYS
from quartet.env import make_environment
from quartet.env.check.experts import play_experts
from quartet.env.check.subject import Subject
from quartet.env.desktop.deadline import Deadline
from quartet.env.desktop.desktop import SETTLE_SECONDS
from quartet.env.desktop.keeper import descendants
from quartet.env.desktop.session import DesktopSession
from quartet.env.desktop.task.setup import Press
from quartet.env.performing import MAX_ACTIONS
from quartet.errors import ConfigError, EnvError
from quartet.registry import build
from quartet.types import Keyboard, Observation, Outcome, Pointer, StepResult, Task, Wait
from quartet.types.frame import Point, Screen

pytestmark = [pytest.mark.desktop, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

LINE = re.compile(
    r"(window|menu|menuitem|button|input|textarea|text|select|option|checkbox|radio|tab|cell|icon|slider|link|terminal)"
    r' \S.* \[\d+\]( = ".*")?( (active|checked|expanded|selected|focused|disabled))*'
)


def settings(**changes: object) -> config.Env:
    return config.Env.model_validate({"name": "desktop", "step_timeout_seconds": 100.0, **changes})


def task(family: str, seed: int = 0) -> Task:
    return Task(env="desktop", family=family, seed=seed)


async def _acquired(env: config.Env) -> DesktopSession:
    session = await make_environment(env).pool(env).acquire()
    assert isinstance(session, DesktopSession)
    return session


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session() -> AsyncIterator[DesktopSession]:
    session = await _acquired(settings())
    yield session
    await session.close()


def home(session: DesktopSession) -> Path:
    return session.desktop.home


def x_server(others: set[psutil.Process]) -> Path:
    """Return the folder in /proc of the X server that has started since `others`."""
    started = set(psutil.Process().children(recursive=True)) - others
    (server,) = [process for process in started if process.name() == "Xvfb"]
    return Path(f"/proc/{server.pid}")


def ref(observation: Observation, name: str) -> str:
    return next(
        line[len(name) :].split("]")[0][2:] for line in observation.text.split("\n") if line.startswith(f"{name} [")
    )


async def play(session: DesktopSession, *actions: str) -> StepResult:
    """The result of the last action; the earlier ones must not end the episode."""
    *before, last = actions
    for action in before:
        assert not (await session.step(action)).terminated
    return await session.step(last)


# ------------------------------------------------------------------------------------------------------ what is seen


async def test_lines_have_the_grammar_of_the_browser_and_references_stay(session: DesktopSession) -> None:
    first = await session.reset(task("move_file"))
    assert all(LINE.fullmatch(line) for line in first.text.split("\n"))
    assert first.text.startswith("window user [1] active\n")
    opened = (await session.step(f"click View [{ref(first, 'menu View')}]")).observation
    assert re.search(r"^menuitem Show Hidden \[\d+\]", opened.text, re.MULTILINE)  # of GTK 2, which marks it hidden
    closed = (await session.step("key Escape")).observation
    assert "menuitem" not in closed.text
    assert ref(closed, "icon Archive") == ref(opened, "icon Archive") == ref(first, "icon Archive")


async def test_the_picture_shows_the_pointer(session: DesktopSession) -> None:
    await session.reset(task("open_missing"))
    result = await session.step("move (400,300)")
    picture = Image.open(io.BytesIO(result.observation.pictures[0].data)).convert("RGB")
    frame = Image.frombytes("RGB", (800, 600), session.desktop.screen.frame(), "raw", "BGRX")
    left, top, right, bottom = ImageChops.difference(picture, frame).getbbox() or (0, 0, 0, 0)
    assert 380 < left <= 400 < right < 420
    assert 280 < top <= 300 < bottom < 330


async def test_a_program_may_set_the_property_of_the_active_window(session: DesktopSession) -> None:
    await session.reset(task("write_note"))
    screen = session.desktop.screen
    (window,) = screen.windows()
    name = screen.display.get_atom("_NET_ACTIVE_WINDOW")
    for values in ([window.id, 7], [window.id]):
        screen.root.change_property(name, Xatom.WINDOW, 32, values)
        assert screen.windows() == [window] and window.active


# ------------------------------------------------------------------------------------------------------ what actions do


async def test_any_text_is_typed_as_it_is_written(session: DesktopSession) -> None:
    observation = await session.reset(task("write_note"))
    text = "Wörld → 漢字 {x} \\\\ <a href='q'>! ~ñß€ " + "".join(chr(0x3B1 + number) for number in range(24))
    place = f"1st [{ref(observation, 'textarea 1st')}]"
    await play(session, f'type {place} "first"', f'type {place} "{text}"', "key Control+s", "done")
    assert (home(session) / "notes.txt").read_text() == text.replace("\\\\", "\\")


async def test_an_empty_text_empties_a_field(session: DesktopSession) -> None:
    observation = await session.reset(task("replace_word"))
    place = f"1st [{ref(observation, 'textarea 1st')}]"
    emptied = (await session.step(f'type {place} ""')).observation
    assert re.search(rf'textarea {re.escape(place)}( = "")?( focused)?$', emptied.text, re.MULTILINE)
    await play(session, "key Control+s")
    assert [file.read_text() for file in home(session).glob("*.txt")] == [""]


async def test_each_action_is_performed_once_and_in_order(session: DesktopSession) -> None:
    observation = await session.reset(task("press_number"))
    seven = f"click 7 [{ref(observation, 'button 7')}]"
    result = await play(session, *[seven] * 5)
    assert 'textarea 1st [7] = "77777"' in result.observation.text
    session.desktop.devices.type("8")  # as a program that changes by itself
    assert 'textarea 1st [7] = "777778"' in (await session.act([])).observation.text


async def test_keys_are_up_after_each_turn(session: DesktopSession) -> None:
    await session.reset(task("write_note"))
    endless = Pointer(gesture="scroll", scrolled=(0, 999_999))  # cut, or it would last for minutes
    result = await session.act([Keyboard(keys=["Shift", "a"], motion="down"), endless, Pointer(gesture="down")])
    assert [one.outcome for one in result.actions] == [Outcome.DONE] * 3
    display = session.desktop.screen.display
    assert not any(display.query_keymap())
    assert not display.screen().root.query_pointer().mask & 0x100


async def test_a_key_that_is_down_stays_down_while_others_are_pressed(session: DesktopSession) -> None:
    await session.reset(task("write_note"))
    shift = Keyboard(keys=["Shift"], motion="down")
    result = await session.act([shift, Keyboard(text="Ab"), Keyboard(keys=["Shift+c", "1"])])
    assert '= "ABC!"' in result.observation.text


async def test_every_key_has_a_code_and_an_unknown_one_is_not_pressed(session: DesktopSession) -> None:
    await session.reset(task("write_note"))
    devices = session.desktop.devices
    assert [key for key in KEYS if not devices.key(key)] == []
    assert not devices.key("Foo") and not devices.key("Control+Foo")
    with pytest.raises(ConfigError, match="no key 'Foo'"):
        Press(["Shift", "Foo"]).apply(session.desktop, Deadline(1.0))


async def test_points_drags_and_clicks_reach_the_program(session: DesktopSession) -> None:
    observation = await session.reset(task("replace_word"))
    word = observation.text.split('= "A ')[1].split()[0]
    (item,) = [item for item in session.desktop.listing().items if item.kind == "textarea"]
    x, y = item.target.box[0], item.target.box[1]  # type: ignore[union-attr]
    line = [Point(x + 3, y + 8), Point(x + 300, y + 8)]
    result = await session.act([Pointer(gesture="drag", places=[*line]), Keyboard(text="new")])
    assert '= "new"' in result.observation.text and word not in result.observation.text
    assert result.actions[0].points == [(point.x, point.y) for point in line]
    twice = Pointer(gesture="double_click", places=[Point(x + 12, y + 8)])
    result = await session.act([Keyboard(text=" word"), Wait(), twice, Keyboard(text="x")])
    assert '= "x word"' in result.observation.text


async def test_a_scroll_without_a_place_is_where_the_pointer_is(session: DesktopSession) -> None:
    await session.reset(task("move_file"))
    computer_13 = build(config.ActionFormat(name="computer_13"))
    move = '{"action_type": "MOVE_TO", "parameters": {"x": 60, "y": 300}}'
    scroll = '{"action_type": "SCROLL", "parameters": {"dy": -5}}'
    await session.act(computer_13.parse(f"```json\n{move}\n```\n```json\n{scroll}\n```", Screen()))
    pointer = session.desktop.screen.root.query_pointer()
    assert (pointer.root_x, pointer.root_y) == (60, 300)


async def test_a_program_that_is_always_busy_does_not_use_up_the_time_of_a_step(session: DesktopSession) -> None:
    await session.reset(task("echo_to_file"))
    await session.step('type here "while :; do :; done\\n"')
    began = time.monotonic()
    result = await session.act([Keyboard(keys=["Shift"])] * MAX_ACTIONS)
    assert time.monotonic() - began < MAX_ACTIONS * SETTLE_SECONDS
    assert [one.outcome for one in result.actions] == [Outcome.DONE] * MAX_ACTIONS


async def test_an_impossible_action_is_an_error_that_the_policy_reads(session: DesktopSession) -> None:
    await session.reset(task("write_note"))
    for action, error, outcome in (
        ("hello", "not an action", Outcome.PARSE_ERROR),
        ("click nothing [190]", "no element [190]", Outcome.REFUSED),
        ("click (800,10)", "outside the page (800,10)", Outcome.REFUSED),
        (f'type here "{"a" * 1001}"', "text longer than 1000 characters", Outcome.REFUSED),
        ('type here "\x07"', "text with a control character", Outcome.REFUSED),
    ):
        result = await session.step(action)
        assert (result.observation.error, result.actions[0].outcome) == (error, outcome)
        assert not result.terminated


async def test_only_a_declaration_scores_in_an_infeasible_task(session: DesktopSession) -> None:
    for family, action, reward in (
        ("play_music", "infeasible", 1.0),
        ("play_music", "done", 0.0),
        ("write_note", "infeasible", 0.0),
    ):
        await session.reset(task(family))
        result = await session.step(action)
        assert (result.reward, result.terminated) == (reward, True)
        assert result.info["infeasible"] is (family == "play_music")


async def test_an_episode_is_judged_when_its_turns_are_used(session: DesktopSession) -> None:
    observation = await session.reset(task("echo_to_file"))
    name, word = (observation.goal.split(f" {before} ")[1].split()[0] for before in ("file", "word"))
    result = await play(session, *["key Shift"] * 5, f'type here "echo {word} > {name}\\n"')
    assert (result.reward, result.terminated, result.truncated) == (1.0, False, True)
    assert result.info["reason"] == "no turns left"


# ------------------------------------------------------------------------------------------------ what is left behind


async def test_an_episode_begins_in_a_fresh_home_and_without_processes_of_the_last(session: DesktopSession) -> None:
    await session.reset(task("echo_to_file"))
    await play(session, 'type here "touch left.txt; (setsid sleep 1234 &) ; echo PS1=x >> ~/.bashrc\\n"')
    before, old = set(descendants(os.getpid())), home(session)
    assert (old / "left.txt").exists()
    observation = await session.reset(task("echo_to_file"))
    assert not before & set(descendants(os.getpid()))
    assert not old.exists() and not (home(session) / "left.txt").exists()
    assert '= "$" focused' in observation.text


async def test_programs_reach_neither_the_machine_nor_a_network(session: DesktopSession, tmp_path: Path) -> None:
    await session.reset(task("echo_to_file"))
    (tmp_path / "secret").write_text("secret")
    commands = (
        f"cat {tmp_path}/secret",
        "touch /usr/x",
        "touch /x",
        "touch /dev/x",
        "mount -o remount,rw /usr",
        "[ -w /proc/sys/kernel/core_pattern ]",
        "[ -w /proc/sysrq-trigger ]",
        "grep -v 0000000000000000 /proc/self/status | grep CapEff",
        f"kill -0 {os.getpid()}",
        "grep 0 /proc/net/route",
        "ls /root",
        "cat /etc/shadow",
        "dd if=/dev/zero of=/dev/null bs=3G count=1",
        "head -c 100M /dev/zero > large",
        "head -c 100M /dev/zero > /tmp/large",
        "head -c 100M /dev/zero > /dev/shm/large",
        "[ $(ulimit -u) = unlimited ]",
    )
    script = "\n".join(f"({command}) >/dev/null 2>&1 && echo '{command}'" for command in commands)
    (home(session) / "tries").write_text(f"touch /tmp/x ~/x || echo no folder\n{script}\necho end\n")
    await play(session, 'type here "sh tries > result; mv result done\\n"')
    done = home(session) / "done"
    Deadline(60).wait(done.exists, "the end of the commands")
    assert done.read_text() == "end\n"


async def test_the_x_server_sees_neither_the_machine_nor_a_network(session: DesktopSession, tmp_path: Path) -> None:
    others = set(psutil.Process().children(recursive=True))
    await session.reset(task("open_missing"))
    server = x_server(others)
    seen = server / "root"
    assert (seen / "usr/bin/Xvfb").exists()
    assert not (seen / str(tmp_path)[1:]).exists() and not (seen / "home").exists() and not (seen / "root").exists()
    assert (server / "ns/net").readlink() != Path("/proc/self/ns/net").readlink()
    assert not [*Path("/tmp/.X11-unix").glob("X???????*")]


async def test_programs_that_are_not_confined_start_in_the_home() -> None:
    session = await _acquired(settings(sandbox="none", screenshots=False))
    observation = await session.reset(task("write_note"))
    line = observation.goal.split("'")[1]
    result = await play(session, f'type 1st [{ref(observation, "textarea 1st")}] "{line}"', "key Control+s", "done")
    assert result.reward == 1.0
    await session.close()


async def test_a_step_after_its_time_limit_leaves_no_process() -> None:
    session = await _acquired(settings(step_timeout_seconds=0.2))
    before = set(descendants(os.getpid()))
    with pytest.raises(EnvError, match=r"(?s)(longer than|within) 0\.2 s.*env\.reset_timeout_seconds"):
        await session.reset(task("write_note"))
    await session.close()
    deadline = time.monotonic() + 60
    while set(descendants(os.getpid())) - before:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_a_reset_and_a_step_have_limits_of_their_own() -> None:
    session = await _acquired(settings(step_timeout_seconds=0.2, reset_timeout_seconds=100.0))
    assert (await session.reset(task("write_note"))).goal
    with pytest.raises(EnvError, match=r"(?s)longer than 0\.2 s.*env\.step_timeout_seconds"):
        await session.step("wait 2")
    await session.close()


async def test_a_dead_x_server_is_an_error_of_the_environment() -> None:
    others = set(psutil.Process().children(recursive=True))
    session = await _acquired(settings())
    await session.reset(task("open_missing"))
    os.kill(int(x_server(others).name), signal.SIGKILL)
    with pytest.raises(EnvError, match="X server"):
        await session.step("key Enter")
    await session.close()


HOST = """
import asyncio, sys
from quartet import config
from quartet.env import make_pool
from quartet.types import Task
async def main():
    pool = make_pool(config.Env(name="desktop", sessions=2, step_timeout_seconds=100))
    sessions = [await pool.acquire() for _ in range(2)]
    await asyncio.gather(*(s.reset(Task(env="desktop", family="difference_in_file", seed=0)) for s in sessions))
    print(*(s.desktop.home.parent for s in sessions), flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


async def test_a_killed_host_leaves_neither_processes_nor_folders() -> None:
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as host:
        assert host.stdout is not None
        folders = [Path(name) for name in host.stdout.readline().split()]
        processes = descendants(host.pid)
        assert len(folders) == 2 and len(processes) > 20
        os.killpg(host.pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while any(Path(f"/proc/{pid}").exists() for pid in processes if pid) or any(map(Path.exists, folders)):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


ONE_OF_EACH = ["uppercase", "add_numbers", "delete_file", "open_folder", "set_cell", "make_executable", "write_note"]
FAMILIES = make_environment(settings()).families()


async def check(families: list[str], seeds: range, sessions: int) -> None:
    env = settings(sessions=sessions, screenshots=False, families=families)
    tasks = [Task(env=env.name, family=family, seed=seed) for family in families for seed in seeds]
    async with Subject(env, seeds) as subject:
        results = await play_experts(subject.environment, subject.pool, tasks)
    assert len(results) == len(families) * len(seeds)
    assert [(result.family, result.seed, result.error) for result in results if not result.passed] == []
    assert {result.family for result in results if not result.feasible} == set(families) & {
        "open_missing",
        "delete_missing",
        "play_music",
    }


async def test_eight_displays_at_once_play_experts_wrong_solutions_and_doing_nothing() -> None:
    await check([*ONE_OF_EACH, "delete_missing"], range(1), sessions=8)


@pytest.mark.campaign
@pytest.mark.timeout(1200)
async def test_experts_score_1_and_doing_nothing_0_in_all_families() -> None:
    assert len(FAMILIES) >= 20
    await check(FAMILIES, range(3), sessions=2)
