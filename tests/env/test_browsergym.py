"""Tasks of BrowserGym with the Chromium of this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from quartet import config
from quartet.env import make_environment
from quartet.env.check.run import check_environment
from quartet.env.environment.browsergym import BrowserGymSession
from quartet.errors import ConfigError
from quartet.types import Outcome, Task

core = pytest.importorskip("browsergym.core", reason="`make test-adapters` installs it")
pytestmark = [pytest.mark.campaign, pytest.mark.browser, pytest.mark.timeout(900)]

PRESS = "browsergym/press"
PAGE = "<button onclick='document.title = 1'>left</button><button onclick='document.title = 2'>right</button>"


@pytest.fixture(scope="module", autouse=True)
def press() -> None:
    """Register a task of two buttons, one of which the seed chooses."""
    from browsergym.core.registration import register_task
    from browsergym.core.task import AbstractBrowserTask

    class Press(AbstractBrowserTask):
        @classmethod
        def get_task_id(cls):
            return "press"

        def __init__(self, seed: int) -> None:
            super().__init__(seed)
            self.viewport, self.slow_mo, self.timeout = {"width": 300, "height": 200}, 0, 5000
            self._wanted = seed % 2 + 1

        def setup(self, page):
            page.set_content(PAGE)
            return f"Press the {['left', 'right'][self._wanted - 1]} button.", {}

        def validate(self, page, chat_messages):
            title = page.title()
            return float(title == str(self._wanted)), bool(title), "", {}

    register_task(Press.get_task_id(), Press)


def task(seed: int) -> Task:
    return Task(env="browsergym", family=PRESS, seed=seed)


async def test_buttons_are_named_in_the_tree_and_pressed_by_the_package_s_actions():
    session = make_environment(config.Env(name="browsergym", ids=[PRESS])).session()
    assert isinstance(session, BrowserGymSession)
    for seed, reward in ((0, 0.0), (1, 1.0)):
        seen = await session.reset(task(seed))
        assert seen.goal == f"Press the {['left', 'right'][seed]} button." and "button 'right'" in seen.text
        number = next(line for line in seen.text.splitlines() if "'right'" in line).strip().split("]")[0][1:]
        wrong = await session.step("dance()")
        assert wrong.actions[0].outcome is Outcome.REFUSED and wrong.observation.error and not wrong.terminated
        result = await session.step(f"click('{number}')")
        while "Timeout" in result.observation.error:  # the package gives a click half a second, even on a busy machine
            result = await session.step(f"click('{number}')")
        assert result.terminated and result.reward == reward and result.info == {"success": reward == 1.0}
    with pytest.raises(ConfigError, match=PRESS):
        await session.reset(Task(env="browsergym", family="browsergym/pres", seed=0))
    await session.close()


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve a folder on this machine. Give the address, and the list of paths that are asked for."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            asked.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()


async def test_a_policy_reaches_the_pages_of_its_task_and_neither_files_nor_other_ports(tmp_path):
    (tmp_path / "page.html").write_text("<button>own page</button>")
    with serving(tmp_path) as (own, _), serving(tmp_path) as (other, asked):
        name = "browsergym/openended"
        options = {"task_kwargs": {"start_url": f"http://{own}/page.html", "goal": "Look."}, "timeout": 10_000}
        session = make_environment(config.Env(name="browsergym", ids=[name], options=options)).session()
        seen = await session.reset(Task(env="browsergym", family=name, seed=0))
        assert "own page" in seen.text
        blocked = await session.step(f"goto('http://{other}/page.html')")
        assert "ERR_NAME_NOT_RESOLVED" in blocked.observation.error and not asked
        for scheme in ("file:", "view-source:file:"):
            refused = await session.step(f"goto('{scheme}//{tmp_path}/page.html')")
            assert refused.observation.error and "own page" not in refused.observation.text
            assert "own page" not in (await session.step("noop()")).observation.text
        assert "own page" in (await session.step(f"goto('http://{own}/page.html')")).observation.text
        await session.close()


async def test_it_passes_all_checks(monkeypatch):
    monkeypatch.setattr("quartet.env.checks.cost.SECONDS", 0.05)
    env = config.Env(name="browsergym", sessions=2, ids=[PRESS], turn_limit=2, step_timeout_seconds=120.0)
    results = await check_environment(env, range(2), lambda _: None)
    assert [result for result in results if not result.passed] == []
