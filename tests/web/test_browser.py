"""Every page in a real browser: light and dark, narrow and wide, by keyboard only, checked by axe-core."""

import pytest
from playwright.async_api import expect

from quartet.run.run_dir import RunLock
from quartet.web.pages import NAVIGATION
from tests.live_runs import slow_learner, start_run, train_step, wait_for
from tests.web.browsing import fits_and_is_accessible, opened, served
from tests.web.conftest import make_run, record_steps
from tests.web.recorded import Recorder

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
NARROW, WIDE = {"width": 360, "height": 740}, {"width": 3840, "height": 2160}
WIDE_IN_CAMPAIGNS = {name: pytest.mark.campaign for name in NAVIGATION if name != "run"}
"""Pages that only the campaigns lay out on a wide screen; `make test` does so with `run`, which has all charts."""
FOCUSABLE = "a[href], button:not([disabled]), input, select, summary, [tabindex='0']"
VISIBLE = f'[...document.querySelectorAll("{FOCUSABLE}")].filter((element) => element.checkVisibility())'


@pytest.mark.parametrize(
    ("viewport", "name"),
    [
        *(pytest.param(NARROW, name, id=f"360-{name}") for name in NAVIGATION),
        *(pytest.param(WIDE, name, id=f"3840-{name}", marks=WIDE_IN_CAMPAIGNS.get(name, ())) for name in NAVIGATION),
    ],
)
async def test_a_page_fits_every_size_and_is_accessible_in_both_themes(recorded_run, browser, name, viewport):
    with served(recorded_run) as address:
        async with opened(browser, f"{address}/runs/bandit/{name}", viewport=viewport) as page:
            await fits_and_is_accessible(page)


@pytest.mark.parametrize("name", NAVIGATION)
async def test_everything_is_reached_by_keyboard(recorded_run, browser, name):
    with served(recorded_run) as address:
        async with opened(browser, f"{address}/runs/bandit/{name}") as page:
            reachable = await page.evaluate(f"{VISIBLE}.length")
            reached = set()
            for _ in range(reachable):
                await page.keyboard.press("Tab")
                reached.add(await page.evaluate(f"{VISIBLE}.indexOf(document.activeElement)"))
    assert reached == set(range(reachable))


async def test_the_theme_is_chosen_by_keyboard_and_stays(recorded_run, browser):
    ground = "getComputedStyle(document.body).backgroundColor"
    with served(recorded_run) as address:
        async with opened(browser, f"{address}/runs/bandit/now", color_scheme="light") as page:
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
        async with opened(browser, f"{address}/runs/bandit/run") as page:
            plot = page.get_by_role("img", name="Success")
            await expect(plot.locator("canvas")).to_be_visible()
            await expect(page.locator("[data-chart=entropy] canvas")).to_be_visible()
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
        async with opened(browser, f"{address}/runs/bandit/run") as page:
            await page.get_by_text("Compare with other runs").click()
            await page.get_by_label("other", exact=True).check()
            await page.wait_for_url("**/run?with=other")
            await expect(page.get_by_role("button", name="other · trained tokens")).to_be_visible()
            await expect(page.get_by_role("region", name="Differences of the recipes")).to_contain_text("runtime.kind")


@pytest.mark.parametrize("name", NAVIGATION)
async def test_scripts_in_model_output_do_not_run(tmp_path, browser, name):
    make_run(tmp_path / "run").close()
    with served(tmp_path / "run") as address:
        async with opened(browser, f"{address}/runs/run/{name}") as page:
            assert "taken over" not in await page.title()
            assert await page.locator("img[src=x]").count() == 0


async def test_a_run_at_work_is_followed_without_a_reload(tmp_path, browser):
    run = Recorder(tmp_path / "run")
    with RunLock(run.run_dir), served(run.run_dir) as address:
        async with opened(browser, f"{address}/runs/run/now") as page:
            assert await page.locator("[data-train-step]").inner_text() == "0"
            await page.evaluate("window.sameDocument = true")
            run.trainable("left", [0.0, 1.0])
            run.train()
            await expect(page.locator("[data-train-step]")).to_have_text("1", timeout=60_000)
            assert await page.evaluate("window.sameDocument")
    run.ledger.close()


@pytest.mark.campaign
async def test_a_run_of_processes_is_followed_without_a_reload(tmp_path, bandit_policy, browser):
    process = start_run(tmp_path, slow_learner(bandit_policy, max_train_steps=1000))
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
