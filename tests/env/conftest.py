"""A real browser, shared by the tests of one module."""

from collections.abc import AsyncIterator

import pytest_asyncio
from desk import Desk

from quartet.env.browser import Browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    browser = await Browser.start()
    yield browser
    await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(browser: Browser) -> Desk:
    return Desk(await browser.new_page("about:blank", width=300, height=260))
