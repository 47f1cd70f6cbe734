"""Every page in a real browser: light and dark, narrow and wide, by keyboard only, checked by axe-core."""

from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from benchmarks.bandit import bandit_recipe
from quartet.runtime.run import run_recipe
from quartet.web.pages import NAVIGATION
from tests.runtime.test_end_to_end import slow_learner, start_run, train_step, wait_for
from tests.web.browsing import opened, served
from tests.web.conftest import make_run, record_steps

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
NARROW, WIDE = {"width": 360, "height": 740}, {"width": 3840, "height": 2160}
FOCUSABLE = "a[href], button:not([disabled]), input, select, summary, [tabindex='0']"
VISIBLE = f'[...document.querySelectorAll("{FOCUSABLE}")].filter((element) => element.checkVisibility())'


@pytest.fixture(scope="module")
def recorded_run(tmp_path_factory, bandit_policy) -> Path:
    """A run that trained four steps and was evaluated before and after."""
    recipe = bandit_recipe(
        bandit_policy,
        runtime={"kind": "synchronous"},
        admission={"max_lag": 0},
        train={"max_train_steps": 4},
        evaluation={"episodes_per_family": 10},
    )
    folder = tmp_path_factory.mktemp("recorded") / "run"
    run_recipe(recipe, folder, resume=False, fresh=False, quiet=True)
    return folder


@pytest.mark.parametrize("name", NAVIGATION)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [NARROW, WIDE], ids=["360", "3840"])
async def test_a_page_is_whole_in_every_size_and_theme(recorded_run, browser, name, theme, viewport):
    with served(recorded_run) as address:
        url = f"{address}/runs/run/{name}"
        async with opened(browser, url, color_scheme=theme, viewport=viewport) as page:
            too_wide = await page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            found = await Axe().run(page)
    assert too_wide == 0
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("name", NAVIGATION)
async def test_everything_is_reached_by_keyboard(recorded_run, browser, name):
    with served(recorded_run) as address:
        async with opened(browser, f"{address}/runs/run/{name}") as page:
            reachable = await page.evaluate(f"{VISIBLE}.length")
            reached = set()
            for _ in range(reachable):
                await page.keyboard.press("Tab")
                reached.add(await page.evaluate(f"{VISIBLE}.indexOf(document.activeElement)"))
    assert reached == set(range(reachable))


async def test_the_theme_is_chosen_by_keyboard_and_stays(recorded_run, browser):
    ground = "getComputedStyle(document.body).backgroundColor"
    with served(recorded_run) as address:
        async with opened(browser, f"{address}/runs/run/now", color_scheme="light") as page:
            light = await page.evaluate(ground)
            toggle = page.get_by_role("button", name="Theme")
            await toggle.focus()
            await page.keyboard.press("Enter")
            assert await page.evaluate(ground) == light  # light, now by choice
            await page.keyboard.press("Enter")
            dark = await page.evaluate(ground)
            await page.reload()
            assert await page.evaluate(ground) == dark != light
            await expect(toggle).to_have_accessible_name("Theme: dark")


async def test_curves_are_drawn_zoomed_and_hidden_by_keyboard(recorded_run, browser):
    with served(recorded_run) as address:
        async with opened(browser, f"{address}/runs/run/run") as page:
            plot = page.get_by_role("img", name="Success")
            await expect(plot.locator("canvas")).to_be_visible()
            whole = page.get_by_role("button", name="Whole run")
            await plot.focus()
            await page.keyboard.press("+")
            await expect(whole).to_be_enabled()
            await page.keyboard.press("Escape")
            await expect(whole).to_be_disabled()
            held_out = page.get_by_role("button", name="held-out, greedy")
            await held_out.press("Enter")
            await expect(held_out).to_have_attribute("aria-pressed", "false")
            await page.get_by_role("button", name="time").press("Enter")
            assert "axis=time" in page.url


async def test_two_runs_lie_over_each_other(recorded_run, tmp_path, browser):
    make_run(tmp_path / "other").close()
    record_steps(tmp_path / "other")
    with served(recorded_run, tmp_path / "other") as address:
        async with opened(browser, f"{address}/runs/run/run") as page:
            await page.get_by_text("Compare with other runs").click()
            await page.get_by_label("other").check()
            await page.wait_for_url("**/run?with=other")
            await expect(page.get_by_role("button", name="other · trained tokens")).to_be_visible()
            await expect(page.get_by_role("region", name="Differences of the recipes")).to_contain_text("runtime.kind")


@pytest.mark.parametrize("name", NAVIGATION)
async def test_what_a_model_wrote_runs_nowhere(tmp_path, browser, name):
    make_run(tmp_path / "run").close()
    with served(tmp_path / "run") as address:
        async with opened(browser, f"{address}/runs/run/{name}") as page:
            assert "taken over" not in await page.title()
            assert await page.locator("img[src=x]").count() == 0


async def test_a_run_at_work_is_followed_without_a_reload(tmp_path, bandit_policy, browser):
    process = start_run(tmp_path, slow_learner(bandit_policy, max_train_steps=40))
    wait_for(lambda: train_step(tmp_path / "run") >= 1, process)
    with served(tmp_path / "run") as address:
        async with opened(browser, f"{address}/runs/run/now") as page:
            before = await page.locator("[data-train-step]").inner_text()
            await page.evaluate("window.sameDocument = true")
            await expect(page.locator("[data-train-step]")).not_to_have_text(before, timeout=60_000)
            assert await page.evaluate("window.sameDocument")
        async with opened(browser, f"{address}/runs/run/run") as page:
            await expect(page.locator("[data-chart=entropy] canvas")).to_be_visible()
    process.terminate()
    process.communicate(timeout=60)
