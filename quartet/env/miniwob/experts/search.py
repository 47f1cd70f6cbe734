"""Expert for the search engine: search, open the right results page, click the right result."""

from .goal import ordinal, parts
from .page import Page, click, fill

RESULTS_PER_PAGE = 3


def nth_result(goal: str, page: Page) -> str:
    """search-engine: `... enter "Ada" and press "Search", then find and click the 5th search result.`

    Results and page numbers are all links; the page numbers are digits, the current one is `active`.
    """
    query, position = parts(r'.* enter "(.*)" and press "Search", then find and click the (\w+) search result\.', goal)
    links = page.all("link")
    if not links:
        return fill(page.find("input"), query) or click(page.find("button", "Search"))
    number, row = divmod(ordinal(position), RESULTS_PER_PAGE)
    number_link = page.find("link", str(number + 1))
    results = [link for link in links if link.label.isalpha()]
    return click(results[row] if "active" in number_link.states else number_link)
