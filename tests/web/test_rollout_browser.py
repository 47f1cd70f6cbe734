"""The trajectory viewer and the timeline in a real browser."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from quartet.run.run_dir import RunLock
from quartet.telemetry.record import Recorder as SpanRecorder
from quartet.telemetry.spans import Span
from quartet.types import Purpose, RolloutPlan, Task
from quartet.web import timeline
from tests.web.browsing import fits_and_is_accessible, opened, served
from tests.web.recorded import Recorder as Recorded
from tests.web.recorded import record, trajectory

FIRST_LANE = 57
"""Pixels from the top of the canvas: the axis, the module's name, half a lane."""
NOW, NOON = 1_800_000_000.0, 1_699_999_200.0
pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("viewer") / "run"
    ledger = record(folder)
    recorder = SpanRecorder(folder, "worker", clock=lambda: NOW + 1)
    for number in range(3):
        span = Span(start=NOW, seconds=1.0, name="generate", lane=f"session {number}", trace=f"rollout {number + 1}.1")
        recorder.finished(span)
    recorder.close()
    with served(folder) as server:
        yield f"{server}/runs/run"
    ledger.close()


@pytest_asyncio.fixture(loop_scope="module")
async def rollout(address, browser) -> AsyncIterator[Page]:
    async with opened(browser, f"{address}/rollouts/2") as page:
        yield page


@pytest.mark.parametrize("page_name", ["rollouts/2", "rollouts/7", "rollouts/2/turns/1", "family?name=left"])
async def test_a_page_fits_a_phone_and_is_accessible_in_both_themes(address, browser, page_name):
    async with opened(browser, f"{address}/{page_name}", viewport={"width": 360, "height": 740}) as page:
        await fits_and_is_accessible(page)


async def test_the_click_is_drawn_where_it_went(rollout):
    """The picture has 4 x 3 pixels, and the first turn clicked at (2, 1): in the middle, a third down."""
    figure = rollout.locator("#turn-1 [data-picture]")
    await expect(figure.locator(".dot")).to_have_count(1)
    frame, dot = await figure.locator("img").bounding_box(), await figure.locator(".dot").bounding_box()
    assert (dot["x"] + dot["width"] / 2 - frame["x"]) / frame["width"] == pytest.approx(1 / 2, abs=0.02)
    assert (dot["y"] + dot["height"] / 2 - frame["y"]) / frame["height"] == pytest.approx(1 / 3, abs=0.02)


async def test_tokens_are_coloured_by_what_is_chosen_with_their_values_as_text(rollout):
    shown = "getComputedStyle(document.querySelectorAll('#turn-1 .token')[2], '::after').content"
    colour = "getComputedStyle(document.querySelectorAll('#turn-1 .token')[2]).backgroundImage"
    assert await rollout.evaluate(shown) == '"−5.00"'
    await rollout.get_by_role("button", name="mask").press("Enter")
    assert await rollout.evaluate(shown) == '"left out"'
    assert "gradient" in await rollout.evaluate(colour)
    await expect(rollout.get_by_role("list", name="mask: what the colours mean")).to_be_visible()
    await expect(rollout.get_by_role("list", name="log-prob: what the colours mean")).to_be_hidden()
    await rollout.reload()
    assert await rollout.evaluate(shown) == '"left out"'


async def test_a_turn_has_an_address(address, browser):
    async with opened(browser, f"{address}/rollouts/2#turn-2") as page:
        await expect(page.locator("article:target h2")).to_have_text("Turn 2")
        await page.get_by_role("link", name="this turn with its raw call").nth(1).click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Turn 2")


async def test_a_picture_that_is_none_is_explained_and_no_script_runs(address, browser):
    page = await browser.new_page()  # not `opened`: a picture that is not served is an error of the console
    await page.goto(f"{address}/rollouts/8")
    await expect(page.get_by_text("its blob is missing or damaged").first).to_be_visible()
    assert await page.title() == "Rollout 8 · run · Quartet"
    assert await page.locator("img[src=x]").count() == 0
    await page.close()


async def test_the_timeline_is_moved_and_zoomed_by_keyboard(address, browser):
    async with opened(browser, f"{address}/timeline#{NOW - 30},60") as page:
        await expect(page.get_by_role("heading", name="worker, 3 lanes")).to_be_visible()
        await expect(page).to_have_url(f"{address}/timeline#{NOW - 30:.3f},60")
        await page.locator("canvas").focus()
        await page.keyboard.press("+")
        await page.keyboard.press("ArrowLeft")
        await expect(page).to_have_url(f"{address}/timeline#{NOW - 30 + 15 - 3:.3f},30")
        await page.get_by_role("button", name="2 s").press("Enter")
        await expect(page.get_by_role("button", name="2 s")).to_have_attribute("aria-pressed", "true")


async def test_the_timeline_stores_and_reads_a_window_after_a_drag_and_not_during_it(address, browser):
    """Browsers refuse more than 100 changes of the address in 10 seconds."""
    drag = """() => {
        [changes, fail] = [0, null];
        const asked = new Promise(done => (tellAsked = done));
        const [change, request, slider] = [history.replaceState, fetch, document.querySelector("[data-where]")];
        history.replaceState = (...given) => { changes += 1; change.apply(history, given); };
        fetch = (...given) => fail ? request(...given) : new Promise((_, reject) => tellAsked((fail = reject)));
        for (let step = 0; step < 200; step++) {
            slider.value = step;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
        }
        return asked.then(() => changes);
    }"""
    async with opened(browser, f"{address}/timeline#{NOW - 30},60") as page:
        await expect(page.get_by_role("heading", name="worker, 3 lanes")).to_be_visible()
        assert await page.evaluate(drag) == 1
        async with page.expect_response("**/timeline/window?*"):
            await page.get_by_role("button", name="2 s").press("Enter")
        await page.evaluate("fail(new Error('late'))")
        await expect(page.locator("[data-note]")).not_to_contain_text("cannot be read")


async def test_the_timeline_opens_on_training_and_not_on_what_came_after(tmp_path, browser):
    ledger, now = record(tmp_path / "run"), [NOW]
    with SpanRecorder(tmp_path / "run", "trainer", clock=lambda: now[0]) as recorder:
        for second in range(300):
            now[0] = NOW + second
            name = "train_step" if second < 150 else "wait"
            recorder.finished(
                Span(start=NOW + second, seconds=1.0, name=name, reason="" if second < 150 else "its end")
            )
    with served(tmp_path / "run") as server:
        async with opened(browser, f"{server}/runs/run/timeline") as page:
            await expect(page.get_by_role("heading", name="trainer")).to_be_visible()
            start, seconds = await page.evaluate("location.hash.slice(1).split(',').map(Number)")
            await expect(page.get_by_role("button", name="1 min")).to_have_attribute("aria-pressed", "true")
    ledger.close()
    assert (start, seconds) == (pytest.approx(NOW + 150 - 60, abs=0.01), 60)


async def test_a_span_leads_to_its_rollout(address, browser):
    async with opened(browser, f"{address}/timeline#{NOW},1") as page:
        await expect(page.get_by_role("heading", name="worker, 3 lanes")).to_be_visible()
        board = await page.locator("canvas").bounding_box()
        await page.locator("canvas").hover(position={"x": board["width"] / 2, "y": FIRST_LANE})
        await expect(page.locator("[data-hint]")).to_contain_text("generate · 1.00 s")
        await page.locator("canvas").click(position={"x": board["width"] / 2, "y": FIRST_LANE})
        await page.get_by_role("link", name="open rollout 1").click()
        await expect(page).to_have_url(f"{address}/rollouts/1")


async def test_the_list_follows_a_run_at_work(tmp_path, browser):
    ledger = record(tmp_path / "run")
    with RunLock(tmp_path / "run"), served(tmp_path / "run") as server:
        async with opened(browser, f"{server}/runs/run/rollouts") as page:
            await expect(page.get_by_text("1 running, 1 queued")).to_be_visible()
            await expect(page.get_by_role("heading", name="11 stored")).to_be_visible()
            (lease,) = ledger.rollouts.claim("w", 1, 60)
            ledger.trajectories.append(lease, trajectory(lease.task, 1.0), 3)
            await expect(page.locator("table.rollouts tbody tr td:first-child a").nth(1)).to_have_text("12")
            await expect(page.get_by_text("1 running, 0 queued")).to_be_visible()
            await expect(page.get_by_role("heading", name="12 stored")).to_be_visible()
    ledger.close()


async def test_families_sort_by_what_is_pressed(address, browser):
    async with opened(browser, f"{address}/tasks") as page:
        names = page.locator("tbody th")
        head = page.get_by_role("button", name=re.compile("^groups"))
        await head.press("Enter")
        await expect(names.first).to_have_text("left")  # it has most
        await head.press("Enter")
        await expect(names.last).to_have_text("left")


async def test_tasks_follow_a_run_and_stay_sorted(tmp_path, browser):
    ledger = record(tmp_path / "run")
    with served(tmp_path / "run") as server:
        async with opened(browser, f"{server}/runs/run/tasks") as page:
            await page.get_by_role("button", name=re.compile("^groups")).press("Enter")
            await expect(page.locator("tbody th").first).to_have_text("left")
            for seed in range(10):
                task = Task(env="bandit", family="right", seed=seed)
                ledger.groups.admit(RolloutPlan(task=task, num_rollouts=1, max_turns=5))
            await expect(page.locator("tbody th").first).to_have_text("right")
            await expect(page.locator("tbody tr").first).to_contain_text("11")
    ledger.close()


async def test_tasks_gain_columns_under_their_own_heads(tmp_path, browser):
    run = Recorded(tmp_path / "run")
    with served(tmp_path / "run") as server:
        async with opened(browser, f"{server}/runs/run/tasks") as page:
            await expect(page.get_by_text("No group was admitted yet.")).to_be_visible()
            run.group("left", [1.0, 0.0])
            run.group("right", [1.0])
            run.group("right", [1.0])
            await expect(page.get_by_text("No group was admitted yet.")).to_have_count(0)
            groups = page.get_by_role("button", name=re.compile("^groups"))
            await groups.press("Enter")
            await expect(page.locator("tbody th").first).to_have_text("right")
            run.group("left", [1.0], purpose=Purpose.EVAL)
            await expect(page.get_by_role("columnheader", name="held-out, before")).to_be_visible()
            heads, cells = page.locator("thead th"), page.locator("tbody tr").nth(1).locator("th, td")
            names = await heads.all_inner_texts()
            place = next(place for place, name in enumerate(names) if name.startswith("held-out"))
            await expect(cells).to_have_count(len(names))
            await expect(cells.nth(place)).to_contain_text("100")
            await expect(page.locator("tbody th").first).to_have_text("right")
            await expect(page.locator("[aria-sort=descending]")).to_have_text(re.compile("^groups"))
            await expect(page.locator("button.sort")).to_have_count(len(names))
            await groups.press("Enter")
            await expect(page.locator("tbody th").first).to_have_text("left")
            await page.wait_for_event("requestfinished", lambda one: one.url.endswith("/tasks"))
            await expect(groups).to_be_focused()
    run.ledger.close()


async def test_filters_are_folded_on_a_phone_unless_one_is_set(address, browser):
    phone = {"viewport": {"width": 390, "height": 740}}
    for query, width, unfolded in (("", phone, False), ("?family=left", phone, True), ("", {}, True)):
        async with opened(browser, f"{address}/rollouts{query}", **width) as page:
            await expect(page.get_by_label("search in text")).to_be_visible(visible=unfolded)


async def test_a_busy_session_is_told_in_shares_of_the_time(tmp_path, browser):
    record(tmp_path / "run").close()
    now = [NOON]
    with SpanRecorder(tmp_path / "run", "worker", clock=lambda: now[0]) as recorder:
        for number in range(8000):
            now[0] = NOON + number / 40
            recorder.finished(Span(start=now[0], seconds=1 / 40, name="generate", lane="session 0"))
    with served(tmp_path / "run") as server:
        async with opened(browser, f"{server}/runs/run/timeline#{NOON},200") as page:
            await expect(page.locator("[data-note]")).to_contain_text("the height is the share")
            board = await page.locator("canvas").bounding_box()
            await page.locator("canvas").hover(position={"x": board["width"] / 2, "y": FIRST_LANE})
            await expect(page.locator("[data-hint]")).to_contain_text("generate 100 %")


async def test_the_newest_record_is_followed_whatever_the_browsers_clock_says(tmp_path, browser):
    record(tmp_path / "run").close()

    def generated(start: float) -> None:
        with SpanRecorder(tmp_path / "run", "worker", clock=lambda: start + 10) as recorder:
            recorder.finished(Span(start=start, seconds=10.0, name="generate", lane="session 0"))

    generated(NOON)
    with RunLock(tmp_path / "run"), served(tmp_path / "run") as server:
        async with opened(browser, f"{server}/runs/run/timeline") as page:
            await expect(page.get_by_role("button", name="follow")).to_have_attribute("aria-pressed", "true")
            generated(NOON + 300)
            await expect(page).to_have_url(re.compile(f"#{NOON + 310 - 60:.3f},60$"))
            await expect(page.locator("[data-note]")).to_contain_text("Drag to move")


async def test_a_window_that_lacks_spans_says_so(address, browser, monkeypatch):
    async with opened(browser, f"{address}/timeline#{NOW},1") as page:
        note = page.locator("[data-note]")
        await expect(note).to_contain_text("Drag to move")
        monkeypatch.setattr(timeline, "MOST_COUNTED_SPANS", 2)
        await page.reload()
        await expect(note).to_contain_text("more spans than can be read")
