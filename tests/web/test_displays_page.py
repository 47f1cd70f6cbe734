"""The page that shows what every session shows."""

import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from quartet.telemetry.displays import Displays
from quartet.types import Observation, Picture
from quartet.web.app import build_app
from tests.web.browsing import fits_and_is_accessible, loaded, opened, served
from tests.web.conftest import SCRIPT, ask
from tests.web.pictured import screen


def show(displays: Displays, number: int, observation: Observation, *, trace: str = "rollout 2.1") -> None:
    displays.show(f"session {number}", observation, trace=trace, task="desk/press/3", turn=0, ended=False)


def seen(title: str) -> Observation:
    return Observation(goal=title, text="", pictures=[Picture(data=screen(title))])


async def test_screens_and_texts_are_shown_with_their_rollouts(run_dir: Path) -> None:
    displays = Displays(run_dir)
    show(displays, 0, seen("first"))
    show(displays, 1, Observation(goal=SCRIPT, text=SCRIPT), trace="")
    async with ask(build_app([run_dir])) as client:
        page = (await client.get("/runs/run/displays")).text
        assert "/runs/run/rollouts/2" in page and "<script>document" not in page
        (address,) = re.findall(r'src="(/runs/run/displays/[^"]+)"', page)
        answer = await client.get(address)
        assert (answer.headers["content-type"], answer.content) == ("image/png", screen("first"))
        for lane in ("session 1", "session 2", "..%2Fconfig.toml", "%00", "x" * 300):
            assert (await client.get(f"/runs/run/displays/env/{lane}")).status_code == 404


async def test_a_picture_stays_with_its_session_when_another_one_ends(run_dir: Path) -> None:
    displays = Displays(run_dir)
    for number in range(2):
        show(displays, number, seen(f"of session {number}"))
    show(Displays(run_dir, "env-2"), 1, seen("of session 1 of another host"))
    async with ask(build_app([run_dir])) as client:
        page = (await client.get("/runs/run/displays")).text
        assert "3 sessions, as the run left them" in page, "no supervisor is running"
        first, second, other = re.findall(r'src="(/runs/run/displays/[^"]+)"', page)
        displays.remove("session 0")
        assert (await client.get(first)).status_code == 404
        assert (await client.get(second)).content == screen("of session 1")
        assert (await client.get(other)).content == screen("of session 1 of another host")


async def test_a_picture_that_is_none_is_not_served(run_dir: Path) -> None:
    show(Displays(run_dir), 0, Observation(goal="", text="", pictures=[Picture(data=SCRIPT.encode())]))
    async with ask(build_app([run_dir])) as client:
        assert (await client.get("/runs/run/displays/env/session 0")).status_code == 404


async def test_a_damaged_display_does_not_hide_the_others(run_dir: Path) -> None:
    displays = Displays(run_dir)
    for number in range(2):
        show(displays, number, seen(f"of session {number}"))
    (damaged,) = (run_dir / "displays").glob("*/session 0.msgpack")
    damaged.write_bytes(damaged.read_bytes()[:40])
    async with ask(build_app([run_dir])) as client:
        page = await client.get("/runs/run/displays")
        assert page.status_code == 200 and "of session 1" in page.text and "of session 0" not in page.text


async def test_a_run_without_displays_says_why(run_dir: Path) -> None:
    async with ask(build_app([run_dir])) as client:
        assert "No session is in use" in (await client.get("/runs/run/displays")).text


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="module")
async def test_displays_follow_their_sessions_on_a_phone_too(run_dir: Path, browser) -> None:
    displays = Displays(run_dir)
    show(displays, 0, seen("first"))
    with served(run_dir) as server:
        view = {"viewport": {"width": 360, "height": 740}}
        async with opened(browser, f"{server}/runs/run/displays", **view) as page:
            await fits_and_is_accessible(page)
            before = await page.locator("li img").get_attribute("src")
            show(displays, 0, seen("second"))
            show(displays, 1, Observation(goal="", text="button next [1]"))
            await expect(page.get_by_text("second")).to_be_visible()
            await expect(page.get_by_role("region", name="Text of session 1")).to_have_text("button next [1]")
            await expect(page.locator("li img")).not_to_have_attribute("src", str(before))
            await loaded(page.locator("li img"))
