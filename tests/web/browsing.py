"""A server, and pages of it in a real browser."""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Locator, Page, expect

from quartet.web.app import build_app
from quartet.web.serve import listen

THEMES = ("light", "dark")
TOO_WIDE_PIXELS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@contextmanager
def served(*run_dirs: Path) -> Iterator[str]:
    """The address of a server that shows these runs."""
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(build_app(run_dirs), log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@asynccontextmanager
async def opened(browser: Browser, url: str, **options: Any) -> AsyncIterator[Page]:
    """A page, with everything its scripts have asked for; whatever it complained about fails the test."""
    context = await browser.new_context(**options)
    page, complaints = await context.new_page(), list[str]()
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    left = "net::ERR_ABORTED"  # the page was left while it asked
    page.on(
        "requestfailed", lambda one: complaints.append(f"{one.url}: {one.failure}") if one.failure != left else None
    )
    await page.goto(url)
    await page.wait_for_load_state("networkidle")
    yield page
    assert complaints == []
    await context.close()


async def loaded(picture: Locator) -> None:
    """Wait until a picture is loaded, also one whose address a script changed.

    Playwright's load state "networkidle" does not do: it is reached once per page, so later waits return at once.
    """
    await expect(picture).not_to_have_js_property("naturalWidth", 0)
    await expect(picture).to_have_js_property("complete", True)


async def fits_and_is_accessible(page: Page) -> None:
    """Fail in a theme in which the page is wider than the window, or in which axe finds a violation."""
    for theme in THEMES:
        await page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # no colours in between
        found = await Axe().run(page)
        assert await page.evaluate(TOO_WIDE_PIXELS) == 0
        assert found.violations_count == 0, found.generate_report()
