"""Check that Chromium starts and answers."""

import asyncio
from collections.abc import Iterator

from quartet.doctor.base import Doctor, Finding, Place, note, ok, refused
from quartet.env.browser import SHELLS, Browser, find_chromium
from quartet.errors import SetupError


class Chromium(Doctor):
    """Check that Chromium starts and answers."""

    before_training = True

    def examine(self, place: Place) -> Iterator[Finding]:
        if not place.needs_browser:
            return
        try:
            program = find_chromium()
            asyncio.run(_start())
        except SetupError as error:
            yield refused(error)
            return
        yield ok(f"{program} starts")
        if not program.endswith(SHELLS):
            yield note(
                "the browser is a full Chromium",
                "install the headless shell, a quarter less processor time: apt-get install chromium-headless-shell",
            )


async def _start() -> None:
    browser = await Browser.start()
    await browser.close()
