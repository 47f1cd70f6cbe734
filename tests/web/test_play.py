"""A person acts in a real environment, by requests as a page sends them, and by mouse and keyboard in a browser."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx
import pytest
import uvicorn
from playwright.async_api import Page, expect

from quartet.errors import ConfigError
from quartet.web.play.app import MAX_BODY_BYTES, build_play_app
from quartet.web.play.player import Player
from quartet.web.serve import listen
from tests.web.browsing import fits_and_is_accessible, opened
from tests.web.pictured import HEIGHT, WIDTH
from tests.web.screen_env import env_section

SCREENS = "tests.web.screen_env:Screens"
TOKEN = "correct-horse"


@asynccontextmanager
async def playing(name: str, family: str, **settings: object) -> AsyncIterator[httpx.AsyncClient]:
    """A client that has the token, of a server on which an episode has begun."""
    player = Player(env_section(name, **settings))
    app = build_play_app(player, token=TOKEN, family=family, seed=0)
    await player.begin(family, 0)  # as the server does at its start
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", follow_redirects=True) as client:
        await client.get("/", params={"token": TOKEN})
        yield client
    await player.close()


async def act(client: httpx.AsyncClient, turn: int, action: str, *, episode: int = 1) -> str:
    answer = await client.post("/act", data={"episode": str(episode), "turn": str(turn), "action": action})
    assert answer.status_code == 200
    return answer.text


async def test_a_text_environment_is_played_to_its_reward():
    async with playing("bandit", "fixed") as client:
        page = (await client.get("/")).text
        assert "Pull an arm." in page and 'value="click [1]"' in page
        assert "not an action" in await act(client, 1, "hello")
        assert "Reward 1" in await act(client, 2, "click left [1]")
        assert "Reward" not in (await client.post("/begin", data={"family": "named", "seed": "4"})).text


async def test_no_response_is_applied_twice():
    """A form that is sent again has the number of a turn that is over."""
    async with playing(SCREENS, "halves") as client:
        for _ in range(3):
            page = await act(client, 1, "click (10,10)")
        assert page.count("click (10,10)") == 1 and "turn 2" in page
        assert "turn 2" in await act(client, 3, "click (10,10)"), "a turn that has not begun"


async def test_a_page_of_an_earlier_episode_does_not_act_in_the_present_one():
    async with playing(SCREENS, "halves") as client:
        await client.post("/begin", data={"family": "halves", "seed": "0"})
        assert "click (10,10)" not in await act(client, 1, "click (10,10)", episode=1)
        assert "click (10,10)" in await act(client, 1, "click (10,10)", episode=2)


async def test_a_failure_of_the_environment_ends_the_episode_and_the_next_one_begins():
    async with playing(SCREENS, "halves") as client:
        failed = (await client.post("/begin", data={"family": "halves", "seed": "13"})).text
        assert "no display is left" in failed
        assert "no display is left" in await act(client, 1, "click (10,10)", episode=2), "nothing is applied"
        assert "Click the right half." in (await client.post("/begin", data={"family": "others", "seed": "1"})).text


async def test_a_step_has_the_time_limit_of_the_environment():
    async with playing(SCREENS, "halves", step_timeout_seconds=0.05) as client:
        ended = await act(client, 1, "wait 5")
        assert "the step took longer than 0.05 s" in ended and "raise env.step_timeout_seconds" in ended


@pytest.mark.parametrize(
    ("path", "data", "status"),
    [
        ("/act", {"episode": "1", "turn": "1"}, 400),
        ("/act", {"turn": "1", "action": "done"}, 400),
        ("/act", {"episode": "1", "turn": "x", "action": "done"}, 400),
        ("/act", {"turn": "1", "action": "x" * MAX_BODY_BYTES}, 413),
        ("/begin", {"family": "halves", "seed": "-1"}, 400),
        ("/begin", {"family": "halves", "seed": "9" * 30}, 400),
        ("/begin", {"family": "nowhere", "seed": "1"}, 400),
    ],
)
async def test_a_wrong_form_is_explained_and_changes_nothing(path, data, status):
    async with playing(SCREENS, "halves") as client:
        assert (await client.post(path, data=data)).status_code == status
        page = (await client.get("/")).text
        assert "turn 1" in page and "Click the right half." in page


async def test_only_the_page_of_this_server_may_act():
    async with playing(SCREENS, "halves") as client:
        form = {"episode": "1", "turn": "1", "action": "click (200,10)"}
        foreign = await client.post("/act", data=form, headers={"origin": "http://evil.example"})
        assert foreign.status_code == 403
        assert (await client.put("/act", data=form)).status_code == 405
        client.cookies.clear()
        for path in ("/", "/pictures/1", "/static/style.css"):
            assert (await client.get(path)).status_code == 401
        assert (await client.post("/act", data=form)).status_code == 401
        assert "Reward" not in (await client.get("/", params={"token": TOKEN})).text


async def test_only_pictures_of_the_observation_are_sent():
    async with playing(SCREENS, "halves") as client:
        assert (await client.get("/pictures/1")).headers["content-type"] == "image/png"
        for place in ("0", "2", "9" * 30):
            assert (await client.get(f"/pictures/{place}")).status_code == 404


def test_an_unknown_family_is_named_before_a_server_starts():
    with pytest.raises(ConfigError, match="halves"):
        Player(env_section(SCREENS)).require("halvs")


@contextmanager
def served(name: str, family: str, **settings: object) -> Iterator[str]:
    """The address of the page of a server, with its token."""
    app = build_play_app(Player(env_section(name, **settings)), token=TOKEN, family=family, seed=0)
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/?token={TOKEN}"
    finally:
        server.should_exit = True
        thread.join()


async def at(page: Page, x: int, y: int) -> tuple[float, float]:
    """The place in the window of a pixel of the screen."""
    box = await page.locator("[data-screen] img").bounding_box()
    return box["x"] + box["width"] * (x + 0.5) / WIDTH, box["y"] + box["height"] * (y + 0.5) / HEIGHT


def sent(page: Page):
    """The newest action in the table of turns."""
    return page.get_by_role("region", name="Turns of this episode").locator("tbody tr").first


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_mouse_and_keyboard_become_actions(browser):
    with served(SCREENS, "halves") as address:
        async with opened(browser, address) as page:
            await page.mouse.move(*await at(page, 20, 30))
            await page.mouse.down()
            await page.mouse.move(*await at(page, 100, 60))
            await page.mouse.up()
            await expect(sent(page)).to_contain_text("drag (20,30) to (100,60)")
            await page.locator("[data-screen]").focus()
            await page.keyboard.type('a "b" \\')
            await page.keyboard.press("Enter")
            await expect(sent(page)).to_contain_text("key Enter")
            await expect(page.locator("tbody tr").nth(1)).to_contain_text('type here "a "b" \\\\"')
            await page.keyboard.press("Control+Shift+ArrowLeft")
            await expect(sent(page)).to_contain_text("key Control+Shift+ArrowLeft")
            await page.mouse.move(*await at(page, 50, 60))
            for _ in range(10):  # as a touchpad does
                await page.mouse.wheel(0, 30)
            # Browsers round the place of a wheel event down to whole pixels of the window.
            await expect(sent(page)).to_contain_text(re.compile(r"scroll \((49|50),(59|60)\) down 3"))
            await page.mouse.click(*await at(page, 50, 60), button="right")
            await expect(sent(page)).to_contain_text("right_click (50,60)")
            await page.get_by_label("mouse").select_option("double_click")
            await page.mouse.click(*await at(page, 51, 60))
            await expect(sent(page)).to_contain_text("double_click (51,60)")
            await page.get_by_label("mouse").select_option("click")
            await page.mouse.click(*await at(page, 250, 60))
            await expect(page.get_by_role("status").first).to_contain_text("Reward 1")
            await expect(page.get_by_role("button", name="done", exact=True)).to_be_disabled()
            await page.get_by_role("button", name="Next seed").click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text("seed 1")


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_no_action_is_not_sent(browser):
    """A button pressed twice on one page, a pointer that the browser took over, and the way out of the screen."""
    twice = "form => { for (const _ of [1, 2]) form.requestSubmit(form.querySelector('button')); }"
    taken_over = """screen => {
        for (const name of ["pointerdown", "pointercancel", "pointerup"])
            screen.dispatchEvent(new PointerEvent(name, { bubbles: true, clientX: 40, clientY: 300 }));
    }"""
    with served(SCREENS, "halves") as address:
        async with opened(browser, address) as page:
            await page.get_by_role("form", name="Text of the observation").evaluate(twice)
            await expect(sent(page)).to_contain_text("click [1]")
            await page.locator("[data-screen]").evaluate(taken_over)
            await page.locator("[data-screen]").focus()
            await page.keyboard.press("Escape")
            field = page.get_by_role("textbox", name="Action")
            await expect(field).to_be_focused()
            await field.fill("move (1,1)")
            await field.press("Enter")
            await expect(sent(page)).to_contain_text("move (1,1)")
            await expect(page.locator("tbody tr")).to_have_count(2)


INPUTS = """steps => {
    const screen = document.querySelector("[data-screen]");
    for (const [what, value] of steps) {
        if (what === "key") screen.dispatchEvent(new KeyboardEvent("keydown", { key: value, bubbles: true }));
        if (what === "wheel") screen.dispatchEvent(new WheelEvent("wheel", { deltaY: value, bubbles: true }));
        if (what === "press") document.querySelector(value).click();
        if (what === "write") document.querySelector("#action").value = value;
    }
}"""
"""Script that makes inputs without a pause, so that typed text and wheel steps are still being collected."""
SEND, LISTED, BEGIN = "form[aria-label=Action] button", ".lines button", "form[action='/begin'] button"
SCROLL = re.compile(r"scroll \(\d+,\d+\) down 1")


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("inputs", "actions"),
    [
        ([("key", "a"), ("key", "\\"), ("press", SEND), ("key", "Enter")], [r'type here "a\\"', "key Enter"]),
        ([("wheel", 100), ("press", SEND), ("key", "Enter")], [SCROLL, "key Enter"]),
        ([("key", "a"), ("write", "wait 0"), ("press", SEND)], ['type here "a"', "wait 0"]),
        (
            [("key", "a"), ("press", LISTED), ("press", LISTED), ("key", "Enter")],
            ['type here "a"', "click [1]", "key Enter"],
        ),
        (
            [("wheel", 100), ("key", "a"), ("wheel", 100), ("key", "Enter")],
            [SCROLL, 'type here "a"', SCROLL, "key Enter"],
        ),
    ],
)
async def test_what_is_collected_is_sent_once_and_in_order(browser, inputs, actions):
    with served(SCREENS, "halves") as address:
        async with opened(browser, address) as page:
            await page.evaluate(INPUTS, inputs)
            await expect(page.locator("tbody tr code")).to_have_text(actions[::-1])


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_collected_does_not_reach_the_next_episode(browser):
    with served(SCREENS, "halves") as address:
        async with opened(browser, address) as page:
            await page.evaluate(INPUTS, [("key", "a"), ("press", BEGIN)])
            await expect(page.locator("[data-episode='2']")).to_be_visible()
            await page.evaluate(INPUTS, [("key", "Enter")])
            await expect(page.locator("tbody tr code")).to_have_text(["key Enter"])


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_text_written_while_an_action_is_applied_stays_in_the_field(browser):
    with served(SCREENS, "halves") as address:
        async with opened(browser, address) as page:
            field = page.get_by_role("textbox", name="Action")
            await field.fill("wait 2")
            await field.press("Enter")
            await field.fill("move (1,1)")
            await expect(page.locator("[data-waiting]")).to_be_visible()
            await expect(sent(page)).to_contain_text("wait 2")
            await expect(field).to_have_value("move (1,1)")


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_text_that_is_sent_while_an_action_is_applied_is_the_next_action(browser):
    with served(SCREENS, "halves") as address:
        async with opened(browser, address) as page:
            field = page.get_by_role("textbox", name="Action")
            for text in ("wait 2", "move (1,1)"):
                await field.fill(text)
                await field.press("Enter")
                await field.press("Enter")  # as a key that bounces
            await expect(sent(page)).to_contain_text("move (1,1)")
            await expect(page.locator("tbody tr")).to_have_count(2)
            await expect(field).to_have_value("")


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_the_page_works_without_its_script_on_a_phone_and_is_accessible(browser):
    view = {"viewport": {"width": 360, "height": 740}}
    with served(SCREENS, "halves") as address:
        async with opened(browser, address, **view) as page:
            await fits_and_is_accessible(page)
        async with opened(browser, address, java_script_enabled=False, **view) as page:
            await page.get_by_role("textbox", name="Action").fill("click (200,5)")
            await page.get_by_role("button", name="Send").click()
            await expect(page.get_by_text("Reward 1.00", exact=True)).to_be_visible()


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_a_page_of_miniwob_is_solved_by_a_click_on_its_picture(browser):
    with served("miniwob", "click-test-2", families=["click-test-2"]) as address:
        async with opened(browser, address) as page:
            line = page.get_by_role("button", name="button ONE")
            await expect(line).to_be_visible(timeout=30_000)
            await line.click()
            await expect(page.get_by_text("Reward 1.00", exact=True)).to_be_visible()


@pytest.mark.slow
def test_the_command_prints_an_address_with_a_token_and_ends_at_ctrl_c(tmp_path):
    command = [sys.executable, "-m", "quartet", "env", "play", "bandit", "fixed"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    with httpx.Client(follow_redirects=True) as client:
        assert client.get(address.partition("?")[0]).status_code == 401
        assert "Pull an arm." in client.get(address).text
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert errors == "stop with Ctrl-C\n"
    assert process.returncode == 0
