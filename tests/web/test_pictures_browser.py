"""Screens in the viewer, in a real browser: the pointer's path, and the tokens that stand for a picture."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from tests.web.browsing import fits_and_is_accessible, loaded, opened, served
from tests.web.pictured import COLUMNS, HEIGHT, PART, ROWS, WIDTH, record_pictures

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("pictures") / "run"
    ledger = record_pictures(folder)
    with served(folder) as server:
        yield f"{server}/runs/run/rollouts"
    ledger.close()


@pytest_asyncio.fixture(loop_scope="module")
async def rollout(address, browser) -> AsyncIterator[Page]:
    async with opened(browser, f"{address}/1") as page:
        for picture in await page.locator("[data-picture] img").all():
            await picture.scroll_into_view_if_needed()
            await loaded(picture)
        yield page


async def on_picture(figure: Locator, mark: Locator) -> tuple[float, float]:
    """The middle of a mark, in pixels of the picture."""
    frame, box = await figure.locator("img").bounding_box(), await mark.bounding_box()
    return (
        (box["x"] + box["width"] / 2 - frame["x"]) / frame["width"] * WIDTH,
        (box["y"] + box["height"] / 2 - frame["y"]) / frame["height"] * HEIGHT,
    )


@pytest.mark.parametrize("page_name", ["1", "1/turns/4", "1/beside?other=2"])
async def test_screens_fit_a_phone_and_are_accessible_in_both_themes(address, browser, page_name):
    async with opened(browser, f"{address}/{page_name}", viewport={"width": 360, "height": 740}) as page:
        await fits_and_is_accessible(page)


async def test_every_gesture_has_its_mark_at_its_place(rollout):
    first, second, third, fourth = (rollout.locator(f"#turn-{number} figure") for number in range(1, 5))
    await expect(first.locator(".ring")).to_have_count(2)  # a double click
    assert await on_picture(first, first.locator(".dot")) == pytest.approx((180, 125), abs=2)
    dots = second.locator(".dot")
    assert [await on_picture(second, dot) for dot in await dots.all()] == [
        pytest.approx(point, abs=2) for point in ((60, 40), (200, 180), (100, 100))
    ]
    await expect(second.locator(".count")).to_have_text(["1", "2"])
    # A thousandth of the screen is not a pixel.
    assert await on_picture(third, third.locator(".dot")) == pytest.approx((WIDTH / 2, HEIGHT / 4), abs=2)
    await expect(third.locator(".undone .ring")).to_have_count(1)
    await expect(fourth.locator(".dot")).to_have_count(0)
    await expect(fourth.locator("figcaption")).to_have_text("as it was before the action")


async def test_the_way_of_the_pointer_leads_from_turn_to_turn(rollout):
    """From the double click to the drag's start, and from its end to the scroll."""
    lines = await rollout.locator("#turn-2 .travel").evaluate_all(
        "all => all.map((line) => ['x1', 'y1', 'x2', 'y2'].map((name) => Number(line.getAttribute(name))))"
    )
    assert lines == [[180, 125, 60, 40], [200, 180, 100, 100]]
    for number in (1, 3):  # no way to the first action, and none to an action that was not done
        await expect(rollout.locator(f"#turn-{number} .travel")).to_have_count(0)


async def test_a_token_is_shown_on_the_picture_and_found_from_it(address, browser):
    async with opened(browser, f"{address}/1/turns/2") as page:
        blocks = page.locator("[data-patches]")
        await expect(blocks).to_have_count(2)
        block = blocks.nth(1)
        await block.scroll_into_view_if_needed()
        field, figure = block.get_by_role("slider"), block.locator("figure")
        await figure.locator("img").scroll_into_view_if_needed()
        await loaded(figure.locator("img"))
        box = await field.locator("svg").bounding_box()
        row, column = 2, 7
        at = {"x": box["width"] * (column + 0.5) / COLUMNS, "y": box["height"] * (row + 0.5) / ROWS}
        await field.locator("svg").hover(position=at)
        assert await on_picture(figure, figure.locator(".patch")) == pytest.approx(
            (PART * (column + 0.5), HEIGHT / ROWS * (row + 0.5)), abs=2
        )
        # 5 words, a mark, a picture, a mark, 3 tokens of the response, 5 words, a mark; tokens count from 1.
        token = 5 + 1 + ROWS * COLUMNS + 1 + 3 + 5 + 1 + row * COLUMNS + column + 1
        await expect(block.locator("[data-where]")).to_contain_text(f"token {token} of the prompt: row 3, column 8")
        await figure.locator("img").hover(position={"x": 1, "y": 1}, force=True)
        await expect(block.locator("[data-where]")).to_contain_text("row 1, column 1")
        await field.focus()
        await field.press("ArrowRight")
        await field.press("ArrowDown")
        await expect(field).to_have_attribute("aria-valuenow", str(COLUMNS + 2))
        assert await on_picture(figure, figure.locator(".patch")) == pytest.approx(
            (PART * 1.5, HEIGHT / ROWS * 1.5), abs=2
        )


async def test_two_rollouts_are_compared_by_their_screens(address, browser):
    async with opened(browser, f"{address}/1/beside?other=2") as page:
        for number in (1, 2):
            figure = page.get_by_label(f"Turn 1 of rollout {number}").locator("figure")
            await figure.locator("img").scroll_into_view_if_needed()
            await expect(figure.locator(".dot")).to_have_count(1)
        sources = await page.locator("figure img").evaluate_all("all => all.map((one) => one.getAttribute('src'))")
        assert len(sources) == len(set(sources)) == 2 * (4 + 1)


async def test_a_prompt_says_how_much_of_it_is_pictures(rollout):
    await expect(rollout.locator("#turn-2")).to_contain_text(f"read 2 pictures: {2 * ROWS * COLUMNS} of the prompt's")
