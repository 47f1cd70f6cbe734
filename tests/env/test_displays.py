"""What people see of a running session: its newest observation, in a file of the run."""

from collections import Counter
from pathlib import Path

from quartet.env.client import RemoteEnvPool
from quartet.env.environment.bandit import BanditEnv
from quartet.env.host import EnvHost
from quartet.env.session_pool import SessionPool
from quartet.telemetry.displays import MAX_TEXT_CHARACTERS, PERIOD_SECONDS, Displays, read_displays
from quartet.telemetry.trace import traced
from quartet.types import Observation, Picture, Task

TOKEN = "token-of-a-test"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def seen(text: str, *pictures: bytes, goal: str = "") -> Observation:
    return Observation(goal=goal, text=text, pictures=[Picture(data=data) for data in pictures])


def show(displays: Displays, observation: Observation, turn: int, *, ended: bool = False, lane: str = "a") -> None:
    displays.show(lane, observation, trace="rollout 3.1", task="t", turn=turn, ended=ended)


def test_short_steps_are_written_once_per_period_and_the_ends_of_an_episode_always(tmp_path: Path) -> None:
    clock = Clock()
    displays = Displays(tmp_path, clock=clock)
    texts = []
    for turn in range(8):
        show(displays, seen(f"step {turn}"), turn, ended=turn == 7)
        clock.now += PERIOD_SECONDS / 4
        texts.append(read_displays(tmp_path)[0].text)
    assert texts == ["step 0"] * 4 + ["step 4"] * 3 + ["step 7"]
    assert read_displays(tmp_path)[0].ended
    clock.now = 0.0  # a clock that was set back must not stop the display
    show(displays, seen("later"), 1)
    assert read_displays(tmp_path)[0].text == "later"


def test_a_display_has_the_newest_picture_and_the_goal_of_its_episode(tmp_path: Path) -> None:
    displays = Displays(tmp_path)
    show(displays, seen("", b"first", b"last", goal="Press next."), 0)
    show(displays, seen("x" * 2 * MAX_TEXT_CHARACTERS), 1, ended=True)
    (display,) = read_displays(tmp_path)
    assert (display.goal, display.picture, len(display.text)) == ("Press next.", b"", MAX_TEXT_CHARACTERS)
    show(displays, seen("", b"first", b"last"), 0)
    assert read_displays(tmp_path)[0].picture == b"last"


def test_sessions_are_in_the_order_of_their_numbers_and_a_new_host_begins_without_any(tmp_path: Path) -> None:
    displays = Displays(tmp_path)
    for number in (10, 2, 1):
        show(displays, seen(""), 0, lane=f"session {number}")
    assert [display.lane for display in read_displays(tmp_path)] == ["session 1", "session 2", "session 10"]
    show(Displays(tmp_path, "env-2"), seen(""), 0, lane="session 3")
    Displays(tmp_path)
    assert [display.lane for display in read_displays(tmp_path)] == ["session 3"], "that of the other host"


async def test_a_host_shows_its_sessions_until_their_clients_leave(tmp_path: Path) -> None:
    pool = SessionPool(lambda: BanditEnv(Counter()), 2)
    host = EnvHost(pool, name="bandit", capacity=2, token=TOKEN, displays=Displays(tmp_path))
    await host.start()
    remote = RemoteEnvPool(lambda: [host.url], 2, token=TOKEN)
    task = Task(env="bandit", family="fixed", seed=3)
    with traced("rollout 7.2"):
        one, other = await remote.acquire(), await remote.acquire()
        await one.reset(task)
        await other.reset(task)
        await one.step("click [1]")
    first, second = read_displays(tmp_path)
    assert (first.trace, first.task, first.turn, first.ended) == ("rollout 7.2", task.key, 1, True)
    assert (second.turn, second.ended, second.goal) == (0, False, "Pull an arm.")
    await remote.release(one, healthy=False)
    await remote.close()
    await host.stop()
    assert read_displays(tmp_path) == []
