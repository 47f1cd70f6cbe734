"""Pinned metrics, the list of them, and what is saved of a chart, in a real browser."""

import csv
import re
import time
from pathlib import Path

import pytest
from playwright.async_api import expect

from quartet.telemetry.record import Recorder
from tests.web.browsing import opened, served
from tests.web.conftest import make_run, record_steps

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("first", "second"):
        make_run(folder / name).close()
        record_steps(folder / name)
    return [folder / "first", folder / "second"]


async def test_a_metric_is_found_pinned_and_remembered_and_a_link_shows_the_same(runs, browser):
    with served(*runs) as address:
        async with opened(browser, f"{address}/runs/first/run?axis=time") as page:
            await page.get_by_text("All recorded metrics").click()
            await page.get_by_role("searchbox").fill("clipping mean")
            shown = page.locator("[data-metrics] li:visible")
            await expect(shown).to_have_count(1)
            await shown.get_by_role("checkbox").check()
            await page.get_by_role("button", name="Show the ticked metrics").click()
            await page.wait_for_url("**/run?axis=time&pin=train%2Fgradient_norm")
            await expect(page.locator("[data-chart='train/gradient_norm'] canvas")).to_be_visible()
            await expect(page.locator("[data-chart=memory]")).to_be_hidden()
            link = page.url
            await page.goto(f"{address}/runs/first/run")
            await page.wait_for_url("**/run?pin=train%2Fgradient_norm")
            await page.evaluate("localStorage.setItem('quartet-pins first', '[\"gone/metric\"]')")
            await page.goto(f"{address}/runs/first/run")
            await expect(page.locator("[data-chart=entropy] canvas")).to_be_visible()
        async with opened(browser, link) as page:
            await expect(page.get_by_role("button", name="time")).to_have_attribute("aria-pressed", "true")
            await expect(page.locator("[data-chart='train/gradient_norm'] canvas")).to_be_visible()


async def test_drawn_curves_of_all_selected_runs_are_saved_as_csv(runs, browser, tmp_path):
    with served(*runs) as address:
        async with opened(browser, f"{address}/runs/first/run?axis=time&smoothing=0&with=second") as page:
            await expect(page.locator("[data-chart=entropy] canvas")).to_be_visible()
            async with page.expect_download() as download:
                await page.get_by_role("button", name="Entropy: save as CSV").click()
            saved = await download.value
            await saved.save_as(tmp_path / "entropy.csv")
            async with page.expect_download() as download:
                await page.get_by_role("button", name="second · trained tokens").click()
                await page.get_by_role("button", name="Entropy: save as CSV").click()
            await (await download.value).save_as(tmp_path / "one.csv")
    rows = list(csv.DictReader((tmp_path / "entropy.csv").open()))
    assert saved.suggested_filename == "first-Entropy.csv"
    assert {(row["run"], row["curve"]) for row in rows} == {(run, "trained tokens") for run in ("first", "second")}
    assert all(float(row["value"]) == pytest.approx((0.5 + 0.25 + 0.5 / 3) / 3, abs=1e-5) for row in rows)
    assert {row["run"] for row in csv.DictReader((tmp_path / "one.csv").open())} == {"first"}, "hidden curves stay out"


async def test_no_cell_of_a_saved_chart_is_a_formula_to_a_spreadsheet(runs, browser):
    values = ["=1+1", "+1", "-1", "@sum(a1)", "\t=1", "\r=1", "plain", "a=1", -1.5, None, 'a "b", c']
    with served(runs[0]) as address:
        async with opened(browser, f"{address}/runs/first/run") as page:
            found = await page.evaluate(
                "async values => { const { cell } = await import('/static/charts/csv.js'); return values.map(cell); }",
                values,
            )
    assert found[:6] == ["'=1+1", "'+1", "'-1", "'@sum(a1)", "'\t=1", '"\'\r=1"']
    assert found[6:] == ["plain", "a=1", "-1.5", "", '"a ""b"", c"']


async def test_only_the_axis_chosen_last_is_requested_again_and_its_errors_shown(runs, browser):
    stubs = """() => {
        for (let timer = setTimeout(() => {}); timer; timer--) clearTimeout(timer);
        [timers, started, unread] = [new Map(), 0, 0];
        allRead = new Promise(done => (tellRead = done));
        setTimeout = act => timers.set(++started, act) && started;
        clearTimeout = timer => timers.delete(timer);
        const request = fetch;
        fetch = async (address, options) => {
            if (options.headers.accept !== "application/json") return request(address, options); // not of the charts
            unread += 1;
            const answer = await request(address, options), body = await answer.json();
            if (!--unread) tellRead();
            if (address.includes("axis=time")) throw new Error("an axis that was left");
            return { ok: true, json: async () => body };
        };
        for (const axis of ["train_step", "time", "train_step"]) document.querySelector(`[data-axis=${axis}]`).click();
    }"""
    refused = """() => {
        fetch = async () => new Response("the token is wrong", { status: 401 }); // plain text
        document.querySelector("[data-axis=time]").click();
    }"""
    with served(runs[0]) as address:
        async with opened(browser, f"{address}/runs/first/run") as page:
            await expect(page.locator("[data-chart=entropy] canvas")).to_be_visible()
            await page.evaluate(stubs)
            await page.evaluate("allRead")
            assert await page.evaluate("() => { for (const act of [...timers.values()]) act(); return unread; }") == 1
            await expect(page.locator("[data-trouble]")).to_be_hidden()
            await page.evaluate(refused)
            await expect(page.locator("[data-trouble]")).to_have_text("first: the token is wrong")


async def test_a_logarithmic_axis_hides_no_value_from_the_legend(tmp_path, browser):
    make_run(tmp_path / "run").close()
    now = [time.time() - 300]
    recorder = Recorder(tmp_path / "run", "trainer", clock=lambda: now[0])
    for step in range(1, 4):
        now[0] += 60
        lags = {"lag_mean_versions": 3 - step, "lag_max_versions": 3 - step, "masked_share": (3 - step) / 4}
        recorder.metric("train", step=step, version=step, loss=-1.0, **lags)
    recorder.close()
    joined = """async () => {
        const { Chart } = await import("/static/charts/chart.js");
        const line = right => ({ right, xs: [1, 2], raw: [0.5, 0], ys: [0.5, 0] });
        return Chart.prototype.table.call({ log: true, runs: 1, lines: [line(false), line(true)] }).map(ys => [...ys]);
    }"""
    with served(tmp_path / "run") as address:
        async with opened(browser, f"{address}/runs/run/run?smoothing=0") as page:
            for name in ("Lag", "Loss"):
                await page.get_by_role("button", name=f"{name}: log scale").press("Enter")
                chart = page.get_by_role("img", name=re.compile(f"^{name}: .*at 3$"))
                shown = page.locator(f"[data-chart={name.lower()}] .legend output")
                newest = ["0", "0", "0 %"] if name == "Lag" else ["-1"]
                await expect(shown).to_have_text(newest)
                await expect(chart).to_have_accessible_name(re.compile(f" {newest[-1]} at 3$"))
            assert await page.evaluate(joined) == [[1, 2], *2 * [[0.5, None]], *2 * [[0.5, 0]]]


async def test_zoom_is_part_of_the_address(runs, browser):
    with served(*runs) as address:
        async with opened(browser, f"{address}/runs/first/run") as page:
            await page.locator("[data-chart=entropy] .plot").focus()
            await page.keyboard.press("+")
            await expect(page.get_by_role("button", name="Whole run")).to_be_enabled()
            link = page.url
        async with opened(browser, link) as page:
            await expect(page.get_by_role("button", name="Whole run")).to_be_enabled()
            await page.get_by_role("button", name="Whole run").press("Enter")
            assert "zoom" in link and "zoom" not in page.url
