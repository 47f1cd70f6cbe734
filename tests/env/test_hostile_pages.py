"""Hostile pages in the real browser, and honest episodes beside them and after them, which must not notice."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from gallery import CLICKED, GALLERY, write_pages

from quartet import config
from quartet.env.miniwob import html
from quartet.env.miniwob.env import MiniWobPool, MiniWobSession
from quartet.errors import EnvError
from quartet.types import Task

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

HONEST = [
    ("click-button", 5, ["click [1]", "click [2]", "click [3]"]),
    ("login-user", 3, ['type Username [1] "x"', 'type Password [2] "y"', "click Login [3]"]),
]


class Canary:
    """A server on this machine that counts the connections to it."""

    def __init__(self) -> None:
        self.connections = 0
        self.port = 0

    async def start(self) -> None:
        server = await asyncio.start_server(self._accept, ["127.0.0.1", "::1"], 0)
        self.port = server.sockets[0].getsockname()[1]
        if server.sockets[-1].getsockname()[1] != self.port:  # the other family has drawn another port
            server.close()
            await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _accept(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def canary() -> Canary:
    canary = Canary()
    await canary.start()
    return canary


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(canary: Canary, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MiniWobPool]:
    """Two sessions of one browser, with the gallery among the task pages."""
    root = tmp_path_factory.mktemp("html")
    shipped = html.html_folder()
    for name in ("core", "common"):
        (root / name).symlink_to(shipped.parent / name)
    (root / "miniwob").mkdir()
    for page in shipped.glob("*.html"):
        (root / "miniwob" / page.name).symlink_to(page)
    secret = root / "secret.html"
    secret.write_text("<body style='background: red'>secret")
    write_pages(root / "miniwob", port=canary.port, file=secret)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html, "html_folder", lambda: root / "miniwob")
        pool = MiniWobPool(config.Env(name="miniwob", sessions=2, step_timeout_seconds=60))
        yield pool
        await pool.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reference(pool: MiniWobPool) -> list[list[object]]:
    """What the honest episodes are like while no hostile page has run."""
    env = await session(pool)
    trails = await honest_episodes(env)
    await pool.release(env, healthy=True)
    return trails


async def session(pool: MiniWobPool) -> MiniWobSession:
    env = await pool.acquire()
    assert isinstance(env, MiniWobSession)
    return env


async def honest_episodes(env: MiniWobSession) -> list[list[object]]:
    """Play them; returns all that the policy reads and gets."""
    trails = []
    for family, seed, actions in HONEST:
        start = await env.reset(Task(env="miniwob", family=family, seed=seed))
        trail: list[object] = [(start.goal, start.text)]
        for action in actions:
            result = await env.step(action)
            trail.append((result.observation.text, result.observation.error, result.reward, result.info["reason"]))
            if result.terminated:
                break
        trails.append(trail)
    return trails


PAUSES = {"leaves": (0.4, 0.1), "loops": (0.1, 0.8), "network": (0.4, 0.4), "downloads": (0.4, 0.4)}
"""Seconds before each action and after the episode, of pages that need a while for what they attempt."""


async def play(env: MiniWobSession, name: str) -> str:
    """Two clicks and some keys in a hostile page; returns how it ended."""
    before, after = PAUSES.get(name, (0.1, 0.1))
    try:
        await env.reset(Task(env="miniwob", family=name, seed=1))
        for action in ("key Tab", "click [1]", "click [2]"):
            await asyncio.sleep(before)
            result = await env.step(action)
            if result.terminated:
                await asyncio.sleep(after)
                return f"reward {result.reward:g}"
    except EnvError as error:
        return f"error {error.what}"
    return "goes on"


async def no_popups(env: MiniWobSession) -> bool:
    """Whether only the two sessions' pages are open, at the latest in a moment."""
    async with asyncio.timeout(60):
        while True:
            answer = await env.browser.connection.browser.call("Target.getTargets")
            if len([target for target in answer["targetInfos"] if target["type"] == "page"]) <= 2:
                return True
            await asyncio.sleep(0.1)


ENDINGS = {
    "forms": "error the page of miniwob/forms/1 went away",
    "goes_to_network": "error the page of",
    "huge_goal": "error",
    "forged_answers": "error",
    "nan_reward": "reward nan",  # an error_reward, once the session is guarded
    "leaves": "error",
    "frames": ("error the page sent more than", "error Runtime.evaluate: the page sent more than"),
    "crashes": ("error the page crashed", "error Runtime.evaluate: the page crashed"),
    "rewrites": "reward 0",
}


@pytest.mark.parametrize("name", GALLERY)
async def test_a_hostile_page_harms_nothing_but_its_own_episode(
    pool: MiniWobPool, canary: Canary, reference: list[list[object]], name: str
) -> None:
    hostile, beside = await session(pool), await session(pool)
    try:
        ending, meanwhile = await asyncio.gather(play(hostile, name), honest_episodes(beside))
        assert meanwhile == reference, "beside it"
        assert await honest_episodes(hostile) == reference, "after it, in the same session"
        assert await no_popups(beside)
        assert canary.connections == 0
        assert ending.startswith(ENDINGS.get(name, "reward 1")), ending
    finally:
        await pool.release(hostile, healthy=True)
        await pool.release(beside, healthy=True)


async def test_a_local_file_is_not_shown(pool: MiniWobPool) -> None:
    env = await session(pool)
    await env.reset(Task(env="miniwob", family="files", seed=1))
    tree = await env.page.session.call("Page.getFrameTree")
    (stage,) = tree["frameTree"]["childFrames"]
    urls = [frame["frame"]["url"] for frame in stage["childFrames"]]
    assert urls
    assert not [url for url in urls if url.startswith("file:")]
    await pool.release(env, healthy=True)


async def test_a_page_saves_no_file(pool: MiniWobPool, tmp_path: Path) -> None:
    env = await session(pool)
    # The browser itself would save one: the frame of the page may not.
    browser = env.browser.connection.browser
    await browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    assert await play(env, "downloads") == "reward 1"
    assert list(tmp_path.iterdir()) == []
    await browser.call("Browser.setDownloadBehavior", behavior="default")
    await pool.release(env, healthy=True)


async def controls(env: MiniWobSession) -> dict[str, int]:
    """Start the page `controls`; returns the reference of each of them by kind and label."""
    start = await env.reset(Task(env="miniwob", family="controls", seed=1))
    return {line.split(" [")[0]: int(line.split("[")[1].split("]")[0]) for line in start.text.splitlines()}


async def test_letters_and_an_emoji_at_the_cut_are_an_observation(pool: MiniWobPool) -> None:
    env, beside = await session(pool), await session(pool)
    refs = await controls(env)
    await beside.reset(Task(env="miniwob", family="click-button", seed=5))
    typed = "a" * 79 + "\U0001f600"
    result, meanwhile = await asyncio.gather(
        env.step(f'type [{refs["textarea area"]}] "{typed}b"'), beside.step("scroll down")
    )
    assert f'textarea area [{refs["textarea area"]}] = "{typed}" focused' in result.observation.text
    assert not result.terminated
    assert not meanwhile.terminated
    await pool.release(env, healthy=True)
    await pool.release(beside, healthy=True)


TYPED = ["\ud83d", "\x00\x01\x7f\x9b", "\u202e\u0301\ufffe\U0010ffff", "\\n\\r\t", "x" * 50_000, "ﬁİß😀"]
KEYS = ["Alt+Left", "Control+w", "Control+t", "Control+n", "Control+r", "Control+p", "Control+s", "Control+o", "Meta+q",
        "Control+Shift+Delete", "Control++", "İ", "😀", "Backspace", "Control+\ud83d"]  # fmt: skip


async def test_no_action_of_the_policy_is_an_error_of_the_environment(pool: MiniWobPool, canary: Canary) -> None:
    sessions = [await session(pool), await session(pool)]
    refs = await controls(sessions[0])
    episodes = [[f"click [{ref}]"] for ref in refs.values()]
    episodes += [[f"drag [{ref}] to (5,5)", "click (5,5)"] for label, ref in refs.items() if label.startswith("link")]
    episodes += [[f'type [{ref}] "1"', "key Enter"] for label, ref in refs.items() if label.startswith("input")]
    episodes += [[f'type [{refs["textarea area"]}] "{text}"'] for text in TYPED]
    episodes += [[f'select [{refs["select 1st"]}] "{"😀" * 39}x😀😀"']]
    episodes += [[f"key {keys}"] for keys in KEYS]
    links = sum(label.startswith("link") for label in refs)
    for keys in ("Control+Enter", "Shift+Enter"):
        episodes += [["key Tab", f"key {keys}"] * links]
    await asyncio.gather(*(act_in_turn(env, episodes[number::2]) for number, env in enumerate(sessions)))
    assert await no_popups(sessions[0])
    assert canary.connections == 0
    for env in sessions:
        await pool.release(env, healthy=True)


async def act_in_turn(env: MiniWobSession, episodes: list[list[str]]) -> None:
    """Play episodes on the page `controls`, each of which is an episode, whatever its actions do."""
    for actions in episodes:
        await controls(env)
        for action in [*actions, "key Tab"]:
            result = await env.step(action)
            assert result.reward == (result.info["reason"] == "solved")
            if result.terminated:
                break


@pytest.mark.parametrize("name", CLICKED)
async def test_page_activity_after_an_action_is_no_environment_error(
    pool: MiniWobPool, reference: list[list[object]], name: str
) -> None:
    env = await session(pool)
    try:
        await env.reset(Task(env="miniwob", family=f"clicked_{name}", seed=1))
        for action in ("click (150,200)", "key Tab", "click [1]"):
            result = await env.step(action)
            assert result.reward == (result.info["reason"] == "solved")
            if result.terminated:
                break
            await asyncio.sleep(1.0 if name == "leaves_late" else 0)
        assert await honest_episodes(env) == reference
    finally:
        await pool.release(env, healthy=True)


async def test_a_page_that_goes_away_by_itself_is_an_error_and_not_a_failure(pool: MiniWobPool) -> None:
    env = await session(pool)
    # It leaves after 0.3 s, perhaps during the reset.
    with pytest.raises(EnvError, match=r"by itself|while it started"):
        await env.reset(Task(env="miniwob", family="leaves", seed=1))
        async with asyncio.timeout(60):
            while not env.page.left:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await env.step("click [1]")
    await pool.release(env, healthy=True)
