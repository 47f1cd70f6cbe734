"""What the browser tests act with: a page, hands, and the text a policy would read."""

from pathlib import Path

from quartet.env.hands import HARNESS, Hands, watching
from quartet.env.page import Page

PAGES = Path(__file__).parent / "pages"


class Desk:
    """A page with the scripts of a text policy, and hands to act on it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.hands = Hands(page)

    async def open(self, name: str) -> str:
        """Load a page of tests/env/pages and return what a policy reads of it."""
        await self.page.navigate((PAGES / name).as_uri())
        await self.page.evaluate(watching())
        await self.page.isolate()
        await self.page.ask(HARNESS)
        return await self.read()

    async def read(self) -> str:
        return await self.page.ask("quartet.settle(() => false, 1000)")

    async def ref(self, start: str) -> int:
        """Reference of the first line that starts so."""
        line = next(line for line in (await self.read()).splitlines() if line.startswith(start))
        return int(line.partition("[")[2].partition("]")[0])
